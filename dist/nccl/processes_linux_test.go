//go:build (amd64 || arm64) && !nocuda

package nccl_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/nccl"
)

// Variables set for the processes that this test starts.
const (
	partKey    = "SNUG_TEST_NCCL_PART"    // what they do
	libraryKey = "SNUG_TEST_NCCL_LIBRARY" // the path of the stand-in
)

func TestMain(m *testing.M) {
	name := os.Getenv(partKey)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := play(parts[name]); err != nil {
		fmt.Println("error:", err)
		var code interface{ ExitCode() int }
		if errors.As(err, &code) {
			os.Exit(code.ExitCode())
		}
		os.Exit(1)
	}
}

// play does the part of a process.
func play(part func(c *nccl.Communicator, me, world int) error) error {
	launch, err := dist.FindLaunch(os.Getenv)
	if err != nil || launch == nil {
		return fmt.Errorf("launched by %v: %w", launch, err)
	}
	g, err := launch.Join(context.Background())
	if err != nil {
		return err
	}
	err = playIn(g.(dist.Watched), part)
	return errors.Join(err, g.Leave(err))
}

func playIn(g dist.Watched, part func(c *nccl.Communicator, me, world int) error) error {
	l, err := nccl.OpenFile(os.Getenv(libraryKey))
	if err != nil {
		return err
	}
	c, err := l.Connect(context.Background(), g, &stream{})
	if err != nil {
		return err
	}
	err = part(c, g.Rank(), g.World())
	return errors.Join(err, c.Leave(err))
}

var parts = map[string]func(c *nccl.Communicator, me, world int) error{
	"exchanges": func(c *nccl.Communicator, me, world int) error {
		return errors.Join(exchanges(c, me, world), exchanges(c, me, world))
	},
	"fails": func(c *nccl.Communicator, me, world int) error {
		if me == 1 {
			return errors.New("this rank has had enough")
		}
		return exchanges(c, me, world)
	},
	"killed":  func(c *nccl.Communicator, me, world int) error { return lose(c, me, world, syscall.SIGKILL) },
	"stopped": func(c *nccl.Communicator, me, world int) error { return lose(c, me, world, syscall.SIGSTOP) },
}

// lose makes rank 1 go away while the others exchange.
func lose(c *nccl.Communicator, me, world int, s syscall.Signal) error {
	for i := 0; ; i++ {
		if err := exchanges(c, me, world); err != nil {
			return err
		}
		if me == 1 && i == 2 {
			if err := syscall.Kill(os.Getpid(), s); err != nil {
				return err
			}
		}
	}
}

// process is a process that has ended.
type process struct {
	out string
	err error
}

// code returns its exit code, -1 after a signal.
func (p process) code() int {
	var e *exec.ExitError
	if errors.As(p.err, &e) {
		return e.ExitCode()
	}
	return 0
}

// processes starts one process for each rank, with the libraries in turn, as mpiexec would, and
// waits for them. One that is stopped is killed once the others have ended.
func processes(t *testing.T, world int, part string, libraries ...string) []process {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // in case all hang
	defer cancel()
	job, shared := rand.Text(), t.TempDir()
	all, outs, errs := make([]*exec.Cmd, world), make([]bytes.Buffer, world), make([]error, world)
	var left sync.WaitGroup
	for r := range all {
		c := exec.CommandContext(ctx, self)
		c.Env = append(os.Environ(), partKey+"="+part, libraryKey+"="+libraries[r%len(libraries)], "STANDIN_DIR="+shared, "PMI_JOBID="+job,
			fmt.Sprint("PMI_RANK=", r), fmt.Sprint("PMI_SIZE=", world), fmt.Sprint("MPI_LOCALRANKID=", r), fmt.Sprint("MPI_LOCALNRANKS=", world))
		c.Stdout, c.Stderr = &outs[r], &outs[r]
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all[r] = c
		if part != "stopped" || r != 1 {
			left.Go(func() { errs[r] = c.Wait() })
		}
	}
	left.Wait()
	if part == "stopped" {
		if err := all[1].Process.Kill(); err != nil {
			t.Error(err)
		}
		errs[1] = all[1].Wait()
	}
	if ctx.Err() != nil {
		t.Fatalf("%s of %d processes does not end", part, world)
	}
	ended := make([]process, world)
	for r := range ended {
		ended[r] = process{outs[r].String(), errs[r]}
	}
	return ended
}

// Each rank is a process of its own, as on a machine with several cards.
func TestProcessesExchange(t *testing.T) {
	for _, definitions := range [][]string{{"VERSION=21403"}, {"VERSION=22304", "SCALABLE"}} {
		path := standIn(t, definitions...)
		for _, world := range []int{2, 4} {
			for r, p := range processes(t, world, "exchanges", path) {
				if p.err != nil {
					t.Errorf("%v: rank %d of %d: %v\n%s", definitions, r, world, p.err, p.out)
				}
			}
		}
	}
}

// A process that fails, is killed or hangs ends the others, which say which it was.
func TestLostProcessEndsAll(t *testing.T) {
	path := standIn(t, "VERSION=22304", "SCALABLE")
	for part, c := range map[string]struct {
		want string
		code int
	}{
		"fails":   {"rank 1 failed: this rank has had enough", 1},
		"killed":  {"rank 1 was lost", 7},
		"stopped": {"rank 1 was lost: no sign of life", 7},
	} {
		t.Run(part, func(t *testing.T) {
			for r, p := range processes(t, 3, part, path) {
				if r != 1 && (p.code() != c.code || !strings.Contains(p.out, c.want)) {
					t.Errorf("rank %d: %v, want code %d and %q:\n%s", r, p.err, c.code, c.want, p.out)
				}
				if r == 1 && p.err == nil {
					t.Errorf("rank 1 ended well:\n%s", p.out)
				}
			}
		})
	}
}

// Processes that find different versions of the library do not start.
func TestProcessesWithOtherLibraries(t *testing.T) {
	for r, p := range processes(t, 2, "exchanges", standIn(t, "VERSION=22304", "SCALABLE"), standIn(t, "VERSION=21403")) {
		if p.err == nil || !strings.Contains(p.out, "use the same version everywhere") {
			t.Errorf("rank %d: %v\n%s", r, p.err, p.out)
		}
	}
}
