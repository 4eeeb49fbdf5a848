package cli

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/snug-ml/snug/train/checkpoint"
)

// endless makes a run continue until it is stopped.
var endless = []string{"--training.max_steps", "100000", "--training.save_steps", "2", "--training.eval_steps", "0", "--hardware.threads", "1"}

// TestFolderRemovedWhileTraining: a run whose folder is removed or replaced stops and says why, and does not
// touch the run that has the name by then.
func TestFolderRemovedWhileTraining(t *testing.T) {
	t.Parallel()
	for _, replaced := range []bool{false, true} {
		work := t.TempDir()
		if err := tiny(work); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(work, "run")
		v := start(t, work, "run", endless...)
		v.until("checkpoint step-")
		if err := os.Rename(dir, filepath.Join(work, "trash")); err != nil { // to others, this is the same as removing it at once
			t.Fatal(err)
		}
		if replaced {
			if o := start(t, work, "run"); o.wait() != exitDone {
				t.Fatalf("the other run ended with code %d:\n%s", o.code, o.output())
			}
		}
		if err := removeAll(filepath.Join(work, "trash")); err != nil {
			t.Fatal(err)
		}
		if code := v.wait(); code != exitFailed || !strings.Contains(v.output(), "this process writes nothing more there") {
			t.Errorf("exit code %d, want %d and why:\n%s", code, exitFailed, v.output())
		}
		if !replaced {
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is there again: %v", err)
			}
			continue
		}
		if o := start(t, work, "whole"); o.wait() != exitDone {
			t.Fatalf("the undisturbed run ended with code %d:\n%s", o.code, o.output())
		}
		sameRuns(t, work, "run")
		// It can also continue as its own run.
		if o := start(t, work, "run"); o.wait() != exitDone || !strings.Contains(o.output(), "done: 12 of 12") {
			t.Errorf("resumed, it ended with code %d:\n%s", o.code, o.output())
		}
	}
}

// removeAll removes a folder that is still being written to.
func removeAll(dir string) (err error) {
	for range 1000 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
	}
	return err
}

// TestFolderMovedWhileTraining: a run whose folder is moved continues there, reports it, and is resumed
// there. It and a run that takes the old name do not affect each other.
func TestFolderMovedWhileTraining(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only the Linux kernel tells where a folder is")
	}
	t.Parallel()
	work := undisturbed(t)
	v := start(t, work, "run", endless...)
	v.until("checkpoint step-")
	if err := os.Rename(filepath.Join(work, "run"), filepath.Join(work, "away")); err != nil {
		t.Fatal(err)
	}
	if !v.until("the run folder was moved: the run continues in ") {
		t.Fatalf("the move is not told:\n%s", v.output())
	}
	if o := start(t, work, "run"); o.wait() != exitDone {
		t.Fatalf("the run that took the name ended with code %d:\n%s", o.code, o.output())
	}
	v.until("checkpoint step-")
	if err := v.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := v.wait(); code != exitStopped || !strings.Contains(v.output(), "away   continues") {
		t.Errorf("exit code %d, want %d:\n%s", code, exitStopped, v.output())
	}
	sameRuns(t, work, "run")
	c, rejected, err := checkpoint.Latest(filepath.Join(work, "away"))
	if err != nil || rejected != nil || c.State.Update <= 12 {
		t.Fatalf("%+v, rejected %v, %v", c, rejected, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"summary.json", "metrics.jsonl", "config.yaml"} {
		if _, err := os.Stat(filepath.Join(work, "away", name)); err != nil {
			t.Error(err)
		}
	}
}
