package checkpoint

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/train/rundir"
)

// The test binary is its own helper process: it runs one of these when the
// variable names it.
const helperVar = "SNUG_CHECKPOINT_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperVar) {
	case "":
		os.Exit(m.Run())
	case "hold":
		helper(func(dir string) error {
			if _, err := Open(dir, Options{}); err != nil {
				return err
			}
			fmt.Println("held")
			time.Sleep(time.Minute)
			return nil
		})
	case "save":
		helper(saveForever)
	}
}

func helper(do func(dir string) error) {
	if err := do(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// saveForever continues the run in dir and prints the number of each checkpoint
// that was reported durable.
func saveForever(dir string) error {
	s, err := Open(dir, Options{KeepLast: 2})
	if err != nil {
		return err
	}
	c, _, err := s.Latest()
	next := int64(1)
	if err == nil {
		next = c.State.Update + 1
		if err := c.Close(); err != nil {
			return err
		}
		s.ContinuedFrom(c.State.Update)
	} else if !errors.Is(err, ErrNone) {
		return err
	}
	for ; ; next++ {
		if err := s.Save(context.Background(), testSnapshot(next)); err != nil {
			return err
		}
		fmt.Println(next)
	}
}

// start runs this binary as a helper on a folder.
func start(t *testing.T, what, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, dir)
	cmd.Env = append(os.Environ(), helperVar+"="+what)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the helper ended by itself")
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	cmd, out := start(t, "hold", dir)
	if !out.Scan() || out.Text() != "held" {
		t.Fatalf("helper says %q", out.Text())
	}
	_, err := Open(dir, Options{})
	var locked *rundir.LockedError
	if host, _ := os.Hostname(); !errors.As(err, &locked) || locked.Owner.PID != cmd.Process.Pid || locked.Owner.Host != host {
		t.Errorf("%v, want the process %d to be named", err, cmd.Process.Pid)
	}
	if msg := fmt.Sprint(err); !strings.Contains(msg, strconv.Itoa(cmd.Process.Pid)) || !strings.Contains(msg, dir) {
		t.Error(msg)
	}
	kill(t, cmd)
	open(t, dir, Options{}) // the lock of a dead process is no obstacle
	if _, err := Open(dir, Options{}); !errors.As(err, &locked) || locked.Owner.PID != os.Getpid() {
		t.Errorf("second store of this process: %v", err)
	}
}

// TestKill: a process that saves without pause is killed at random moments.
// Each time the newest checkpoint is intact, and not older than what had been
// reported as saved. SNUG_KILLS sets the number of kills.
func TestKill(t *testing.T) {
	kills := 25
	if n, err := strconv.Atoi(os.Getenv("SNUG_KILLS")); err == nil {
		kills = n
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	last := int64(-1)
	for i := range kills {
		cmd, out := start(t, "save", dir)
		delay := time.Duration(r.IntN(60)) * time.Millisecond
		if out.Scan() { // it is past its start; now kill it wherever it may be
			time.Sleep(delay)
		}
		killed := make(chan struct{})
		reported, err := strconv.ParseInt(out.Text(), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(killed)
			for out.Scan() {
				if n, err := strconv.ParseInt(out.Text(), 10, 64); err == nil {
					reported = n
				}
			}
		}()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-killed
		if err := cmd.Wait(); err == nil {
			t.Fatal("the helper ended by itself")
		}
		got, rejected := latest(t, dir)
		if got < reported || got > reported+1 || got < last || rejected != nil {
			t.Fatalf("kill %d: latest is %d, reported %d, the time before %d; rejected %v", i, got, reported, last, rejected)
		}
		last = got
	}
	open(t, dir, Options{})
	list, err := os.ReadDir(filepath.Join(dir, Folder))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if _, suffix, ok := parseStep(e.Name()); !ok || suffix != "" {
			t.Errorf("Open left %s behind", e.Name())
		}
	}
	if len(list) > 4 {
		t.Errorf("%d checkpoints are kept", len(list))
	}
}
