//go:build (amd64 || arm64) && !nocuda

package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/mpi"
)

// part names what a process that this test starts with an MPI launcher does.
const part = "SNUG_TEST_MPI_PART"

func TestMain(m *testing.M) {
	name := os.Getenv(part)
	if name == "" {
		os.Exit(m.Run())
	}
	err := play(name)
	if err != nil {
		fmt.Println("error:", err)
		var code interface{ ExitCode() int }
		if errors.As(err, &code) {
			mpi.Exit(code.ExitCode())
		}
		mpi.Exit(1)
	}
	mpi.Exit(0)
}

// play does the part of a process.
func play(name string) error {
	launch, err := dist.FindLaunch(os.Getenv)
	if err != nil || launch == nil {
		return fmt.Errorf("launched by %v: %w", launch, err)
	}
	met, err := launch.Join(context.Background())
	if err != nil {
		return err
	}
	g, lib, err := mpi.Open(context.Background(), met.(dist.Watched), os.Getenv("SNUG_TEST_MPI_LIBRARY"))
	if err != nil {
		return errors.Join(err, met.Leave(err))
	}
	if g.Rank() == 0 {
		fmt.Println("over", lib)
	}
	err = parts[name](g)
	return errors.Join(err, g.Leave(err))
}

var parts = map[string]func(g dist.Group) error{
	"exchanges": exchanges, "sizes": sizes, "kinds": kinds, "fails": fails, "signals": handlers, "leaves": func(dist.Group) error { return nil },
	"killed":  func(g dist.Group) error { return lose(g, syscall.SIGKILL) },
	"stopped": func(g dist.Group) error { return lose(g, syscall.SIGSTOP) },
}

// text is what rank from sends to rank to: its length differs from pair to pair.
func text(from, to, n int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%d to %d;", from, to)), n*(from+2*to))
}

func exchanges(g dist.Group) error {
	world, me := g.World(), g.Rank()
	for _, n := range []int{0, 1, 1000, 90_000, 300_000} { // nothing; one message; several to each
		for range 3 {
			send, recv, gathered := make([][]byte, world), make([][]byte, world), make([][]byte, world)
			for r := range world {
				send[r], recv[r] = text(me, r, n), make([]byte, len(text(r, me, n)))
				gathered[r] = make([]byte, len(text(r, 0, n)))
			}
			copy(gathered[me], text(me, 0, n))
			if err := errors.Join(g.AllToAll(send, recv), g.AllGather(gathered)); err != nil {
				return err
			}
			for r := range world {
				if !bytes.Equal(recv[r], text(r, me, n)) || !bytes.Equal(gathered[r], text(r, 0, n)) {
					return fmt.Errorf("rank %d has something else from rank %d", me, r)
				}
			}
			for root := range world {
				var data []byte
				if me == root {
					data = text(root, 7, n)
				}
				got, err := dist.BroadcastSized(g, root, data)
				if err != nil || !bytes.Equal(got, text(root, 7, n)) {
					return fmt.Errorf("broadcast: %d bytes, %w", len(got), err)
				}
			}
		}
	}
	return dist.Barrier(g)
}

// sizes makes ranks disagree about a size: all must end with an error.
func sizes(g dist.Group) error {
	parts := make([][]byte, g.World())
	for r := range parts {
		parts[r] = make([]byte, 4+4*g.Rank())
	}
	return g.AllGather(parts)
}

func kinds(g dist.Group) error {
	if g.Rank() == 0 {
		return dist.Barrier(g)
	}
	return errors.Join(g.Broadcast(1, make([]byte, 1)), dist.Barrier(g))
}

// fails makes a rank end with an error of its own while the others wait for it.
func fails(g dist.Group) error {
	if g.Rank() == 1 {
		return errors.New("this rank has had enough")
	}
	return dist.Barrier(g)
}

// lose makes a rank end before it is done.
func lose(g dist.Group, s syscall.Signal) error {
	if err := dist.Barrier(g); err != nil {
		return err
	}
	if g.Rank() == 1 {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			return err
		}
	}
	for {
		if err := exchanges(g); err != nil {
			return err
		}
	}
}

// handlers causes faults that Go turns into errors.
func handlers(g dist.Group) (err error) {
	if err := exchanges(g); err != nil {
		return err
	}
	defer func() {
		if p := recover(); p == nil {
			err = errors.New("a nil pointer was followed")
		}
	}()
	var none *[2]int
	fmt.Fprintln(os.Stderr, none[g.World()%2])
	return nil
}

// launcher is a program that starts processes with MPI.
type launcher struct {
	name  string
	start []string
	path  string // of the library; empty: found
}

// launchers returns those installed here.
func launchers(t *testing.T) (list []launcher) {
	t.Helper()
	for _, l := range []launcher{
		{"Open MPI", []string{"mpirun.openmpi", "--oversubscribe", "-n"}, ""},
		{"MPICH", []string{"mpiexec.mpich", "-n"}, ""},
	} {
		if path, err := exec.LookPath(l.start[0]); err == nil {
			l.start[0] = path
			list = append(list, l)
		}
	}
	if extra := os.Getenv("SNUG_TEST_MPIRUN"); extra != "" {
		list = append(list, launcher{extra, append(strings.Fields(extra), "-n"), os.Getenv("SNUG_TEST_MPI_LIBRARY")})
	}
	if len(list) == 0 {
		t.Skip("no mpirun.openmpi and no mpiexec.mpich is installed")
	}
	if testing.Short() {
		t.Skip("starts processes")
	}
	return list
}

// play starts n processes that do the named part.
func (l *launcher) play(t *testing.T, n int, name string) (out string, err error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // in case all hang
	defer cancel()
	c := exec.CommandContext(ctx, l.start[0], append(append([]string{}, l.start[1:]...), fmt.Sprint(n), self)...)
	c.Env = append(os.Environ(), part+"="+name, "SNUG_TEST_MPI_LIBRARY="+l.path, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	b, err := c.CombinedOutput()
	if ctx.Err() != nil {
		t.Fatalf("%s of %d ranks does not end:\n%s", name, n, b)
	}
	return string(b), err
}

func TestExchangesUnderLaunchers(t *testing.T) {
	for _, l := range launchers(t) {
		for _, n := range []int{2, 4} {
			t.Run(fmt.Sprint(l.name, "/", n), func(t *testing.T) {
				for _, name := range []string{"exchanges", "signals", "leaves"} {
					out, err := l.play(t, n, name)
					if err != nil || !strings.Contains(out, "over ") {
						t.Errorf("%s: %v\n%s", name, err, out)
					}
				}
			})
		}
	}
}

func TestDisagreementAndFailure(t *testing.T) {
	for _, l := range launchers(t) {
		t.Run(l.name, func(t *testing.T) {
			for name, want := range map[string]string{
				"sizes": "bytes in call", "kinds": "do not run the same program", "fails": "had enough",
			} {
				if out, err := l.play(t, 2, name); err == nil || !strings.Contains(out, want) {
					t.Errorf("%s: %v, want %q:\n%s", name, err, want, out)
				}
			}
		})
	}
}

// A rank that is killed, or that hangs, ends the others, whether they learn of it from the
// launcher or from missing signs of life.
func TestLostRankEndsAll(t *testing.T) {
	for _, l := range launchers(t) {
		t.Run(l.name, func(t *testing.T) {
			if out, err := l.play(t, 3, "killed"); err == nil {
				t.Errorf("killed: no error:\n%s", out)
			}
			out, err := l.play(t, 3, "stopped")
			if err == nil || !strings.Contains(out, "rank 1 was lost: no sign of life") {
				t.Errorf("stopped: %v\n%s", err, out)
			}
		})
	}
}

// A library that belongs to another launcher finds only one process.
func TestForeignLibraryIsRefused(t *testing.T) {
	list := launchers(t)
	if len(list) < 2 {
		t.Skip("needs Open MPI and MPICH")
	}
	for i, name := range []string{"libmpich.so.12", "libmpi.so.40"} {
		l := list[i]
		l.path = name
		out, err := l.play(t, 2, "leaves")
		if err == nil || !strings.Contains(out, "the processes must be started by the mpirun, mpiexec or srun that belongs to the library") {
			t.Errorf("%s under %s: %v\n%s", name, l.name, err, out)
		}
	}
}
