package dist_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snug-ml/snug/dist"
)

// part names what a process that these tests start does.
const part = "SNUG_TEST_DIST_PART"

func TestMain(m *testing.M) {
	name := os.Getenv(part)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := play(name); err != nil {
		fmt.Println("error:", err)
		dist.KillLost()
		if errors.As(err, new(*dist.LostError)) {
			os.Exit(7)
		}
		os.Exit(1)
	}
	os.Exit(0)
}

// play does the part of a process: meet, or stop:RANK, which stops that rank once all
// have met.
func play(name string) error {
	l, err := dist.FindLaunch(os.Getenv)
	if err != nil || l == nil {
		return fmt.Errorf("launched by %v: %w", l, err)
	}
	l.Silence = time.Second
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	g, err := l.Join(ctx)
	if err != nil {
		return err
	}
	fmt.Println("rank", g.Rank(), "of", g.World(), "has met the others")
	if err := dist.Barrier(g); err != nil {
		return errors.Join(err, g.Leave(err))
	}
	if _, rank, stop := strings.Cut(name, "stop:"); stop {
		if rank == fmt.Sprint(g.Rank()) {
			err = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		for err == nil { // a stop takes a moment to reach all threads
			err = dist.Barrier(g)
		}
	}
	return errors.Join(err, g.Leave(err))
}

// process returns a command that runs this program with a part and further variables.
func process(t *testing.T, name string, vars ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // in case all hang
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, self)
	c.Env = append(append(os.Environ(), part+"="+name), vars...)
	return c
}

// The lowest of the other ranks on a machine kills a rank that hangs: whatever started the ranks
// sees all of them end.
func TestHangingRankIsEnded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for stopped := range 3 {
		t.Run(fmt.Sprint("rank ", stopped), func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			_, port, _ := net.SplitHostPort(l.Addr().String())
			_ = l.Close()
			var ranks []*exec.Cmd
			said := make([]bytes.Buffer, 3)
			for r := range 3 {
				c := process(t, fmt.Sprint("stop:", stopped), fmt.Sprint("RANK=", r), "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port)
				c.Stdout = &said[r]
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				ranks = append(ranks, c)
			}
			for r, c := range ranks {
				_ = c.Wait() // its state says how it ended
				status := c.ProcessState.Sys().(syscall.WaitStatus)
				if r == stopped && status.Signal() != syscall.SIGKILL {
					t.Errorf("the stopped rank ends with %v", c.ProcessState)
				}
				if want := fmt.Sprintf("rank %d was lost: no sign of life", stopped); r != stopped && (status.ExitStatus() != 7 || !strings.Contains(said[r].String(), want)) {
					t.Errorf("rank %d ends with %v and %q, want %q", r, c.ProcessState, said[r].String(), want)
				}
			}
		})
	}
}

// under runs processes with a launcher, which end when it does.
func under(t *testing.T, launcher, name string, args ...string) (string, error) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	path, err := exec.LookPath(launcher)
	if err != nil {
		t.Skipf("%s is not installed", launcher)
	}
	c := process(t, name, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	self := c.Path
	c.Path, c.Args = path, []string{launcher}
	for _, a := range args {
		c.Args = append(c.Args, strings.ReplaceAll(a, "SELF", self))
	}
	out, err := c.CombinedOutput()
	return string(out), err
}

// Processes meet when a script lies between the launcher and each of them, even one within
// another script.
func TestWrappedProcessesMeet(t *testing.T) {
	for launcher, args := range map[string][]string{
		"mpiexec.mpich":  {"-n", "2", "sh", "-c", "SELF; exit $?"},
		"mpirun.openmpi": {"--oversubscribe", "-n", "2", "sh", "-c", "sh -c 'SELF; exit $?'; exit $?"},
	} {
		t.Run(launcher, func(t *testing.T) {
			out, err := under(t, launcher, "meet", args...)
			if err != nil || strings.Count(out, "of 2 has met the others") != 2 {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}

// MPICH's mpiexec, which waits for every process, ends even if one hangs.
func TestHangingRankUnderMPICH(t *testing.T) {
	for _, rank := range []string{"0", "1"} {
		if out, err := under(t, "mpiexec.mpich", "stop:"+rank, "-n", "2", "SELF"); err == nil || !strings.Contains(out, "rank "+rank+" was lost: no sign of life") {
			t.Errorf("%v:\n%s", err, out)
		}
	}
}
