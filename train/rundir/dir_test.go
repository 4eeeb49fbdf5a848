package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// held opens a run folder that closes with the test.
func held(t *testing.T, path string, moved func(string)) *Dir {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := Open(path, moved)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // closed twice where the test does
	return d
}

// A folder that is moved is followed: files are written there, the move is reported
// once, and whatever has the old name is not touched.
func TestMoved(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only the Linux kernel tells where a folder is")
	}
	work := t.TempDir()
	run, away := filepath.Join(work, "run"), filepath.Join(work, "away")
	var told []string
	d := held(t, run, func(to string) { told = append(told, to) })
	if err := d.Replace("file", []byte("1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(run, away); err != nil {
		t.Fatal(err)
	}
	held(t, run, nil) // another run takes the name
	for _, text := range []string{"2", "3"} {
		if err := d.Replace("file", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := read(t, filepath.Join(away, "file")); got != text {
			t.Errorf("the folder that was moved holds %q, want %q", got, text)
		}
	}
	if _, err := os.Stat(filepath.Join(run, "file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file in the other run's folder: %v", err)
	}
	if len(told) != 1 || filepath.Base(told[0]) != "away" || d.Path() != told[0] {
		t.Errorf("told %q, path %q", told, d.Path())
	}
}

// A folder that is gone is not written to, nor is one in its place.
func TestGone(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(run string) error
		want string
	}{
		{"removed", os.RemoveAll, "was removed"},
		{"replaced", func(run string) error { return errors.Join(os.RemoveAll(run), os.Mkdir(run, 0o755)) }, "another took its place"},
		{"emptied and taken", func(run string) error {
			if err := os.Remove(filepath.Join(run, LockFile)); err != nil {
				return err
			}
			other, err := Open(run, nil)
			if err == nil {
				t.Cleanup(func() { _ = other.Close() })
			}
			return err
		}, "was taken by process"},
		{"emptied, taken and left", func(run string) error {
			if err := os.Remove(filepath.Join(run, LockFile)); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(run, LockFile), []byte(`{"pid":1,"host":"h","since":"2026-01-01T00:00:00Z"}`), 0o600)
		}, "was taken by process 1 on host h"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := filepath.Join(t.TempDir(), "run")
			d := held(t, run, func(to string) { t.Errorf("told that it moved to %s", to) })
			if err := d.Check(); err != nil {
				t.Fatal(err)
			}
			if err := c.do(run); err != nil {
				t.Fatal(err)
			}
			before := read(t, filepath.Join(run, LockFile))
			var gone *GoneError
			for range 2 { // it stays gone
				if err := d.Replace("file", nil); !errors.As(err, &gone) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), run) {
					t.Errorf("%v, want %q", err, c.want)
				}
			}
			if _, err := d.Append("log"); !errors.As(err, &gone) {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			list, err := os.ReadDir(run)
			if err != nil && !errors.Is(err, os.ErrNotExist) || len(list) > 1 || read(t, filepath.Join(run, LockFile)) != before {
				t.Errorf("the folder holds %v %v", list, err)
			}
		})
	}
}

// A lock file that was removed is made again, with the run's identity.
func TestLockIsTakenAgain(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	d := held(t, run, nil)
	id := NewID()
	if err := d.Begin(id); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(run, LockFile)); err != nil {
		t.Fatal(err)
	}
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if _, err := Open(run, nil); !errors.As(err, &locked) || locked.Owner.Run != id || LastRun(run) != id {
		t.Errorf("%v, last run %q, want %q", err, LastRun(run), id)
	}
}

// The identity stays when the process ends.
func TestIdentityStays(t *testing.T) {
	run := t.TempDir()
	id := NewID()
	if other := NewID(); len(id) != 32 || other == id {
		t.Errorf("identities %q and %q", id, other)
	}
	d := held(t, run, nil)
	if err := errors.Join(d.Begin(id), d.Close()); err != nil {
		t.Fatal(err)
	}
	if d = held(t, run, nil); d.ID() != id {
		t.Errorf("%q, want %q", d.ID(), id)
	}
}

// A folder reached by a symbolic link is the one that the link leads to.
func TestFolderByALink(t *testing.T) {
	work := t.TempDir()
	link := filepath.Join(work, "latest")
	if err := errors.Join(os.Mkdir(filepath.Join(work, "run"), 0o755), os.Symlink("run", link)); err != nil {
		t.Skip(err)
	}
	d, err := Open(link, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	if err := errors.Join(d.Replace("file", []byte("x")), d.Check()); err != nil || d.Path() != link {
		t.Errorf("%v, path %s", err, d.Path())
	}
}

// A file that is opened again says nothing of a move: its writer may hold the lock that a report waits for.
// The next check does.
func TestAgainLeavesReportsToCheck(t *testing.T) {
	work := t.TempDir()
	was, is := filepath.Join(work, "run"), filepath.Join(work, "moved")
	if err := os.Mkdir(was, 0o777); err != nil {
		t.Fatal(err)
	}
	var moves []string
	d, err := Open(was, func(to string) { moves = append(moves, to) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }() // nothing to lose
	f, err := d.Append("log")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := errors.Join(os.Rename(was, is), os.Remove(filepath.Join(is, "log"))); err != nil {
		t.Skip(err) // not while it is open
	}
	again, err := d.Again("log", f)
	if err != nil {
		t.Skip(err) // the system does not know where the folder is
	}
	defer func() { _ = again.Close() }()
	if len(moves) > 0 {
		t.Errorf("reported while a file is opened again: %v", moves)
	}
	if err := d.Check(); err != nil || len(moves) != 1 || moves[0] != is {
		t.Errorf("after a check: %v %v, want %s", moves, err, is)
	}
	if err := d.Check(); err != nil || len(moves) != 1 {
		t.Errorf("after another one: %v %v", moves, err)
	}
}
