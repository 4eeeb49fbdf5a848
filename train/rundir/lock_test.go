package rundir

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// write puts a text into a file.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// read is the text of a file; empty where there is none.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// TestLockWithoutFlock: where a file system has no locks, the name in the lock
// file decides.
func TestLockWithoutFlock(t *testing.T) {
	none := func(*os.File, bool) (bool, bool, error) { return false, true, nil }
	dir := t.TempDir()
	path := filepath.Join(dir, LockFile)
	d, err := open(dir, nil, none)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock file stays: %v", err)
	}
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		owner   string
		refused bool
	}{
		{"", false},
		{"rubbish", false},
		{fmt.Sprintf(`{"pid":%d,"host":%q}`, other.Process.Pid, hostname()), true},
		{fmt.Sprintf(`{"pid":%d,"host":"elsewhere"}`, other.Process.Pid), true},
		{fmt.Sprintf(`{"pid":%d,"host":%q}`, os.Getpid(), hostname()), false},
	} {
		write(t, path, c.owner)
		d, err := open(dir, nil, none)
		var locked *LockedError
		if c.refused != errors.As(err, &locked) {
			t.Errorf("%s: %v", c.owner, err)
		}
		if c.refused && read(t, path) != c.owner {
			t.Errorf("%s: a refused process wrote to the lock", c.owner)
		}
		if err == nil {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // killed, as it reports
	write(t, path, fmt.Sprintf(`{"pid":%d,"host":%q}`, other.Process.Pid, hostname()))
	if d, err = open(dir, nil, none); err != nil {
		t.Fatalf("the owner is dead: %v", err)
	}
	// The lock of another process is not removed.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, "another's")
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if got := read(t, path); got != "another's" {
		t.Errorf("the lock of another is %q now", got)
	}
}

// TestLockIsARegularFile: anything but a regular file is refused and left alone.
func TestLockIsARegularFile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "precious")
	write(t, outside, "text")
	for what, make := range map[string]func(path string) error{
		"a symbolic link": func(path string) error { return os.Symlink(outside, path) },
		"a symbolic link to nothing": func(path string) error {
			return os.Symlink(filepath.Join(filepath.Dir(outside), "nothing"), path)
		},
		"a link to a file beside it": func(path string) error {
			write(t, filepath.Join(filepath.Dir(path), "beside"), "text")
			return os.Symlink("beside", path)
		},
		"a folder": func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, LockFile)); err != nil {
			t.Skip(err)
		}
		_, err := Open(dir, nil)
		if err == nil || !strings.Contains(err.Error(), "not a regular file, but a ") || !strings.Contains(err.Error(), filepath.Join(dir, LockFile)) {
			t.Errorf("%s: %v", what, err)
		}
		if got := read(t, filepath.Join(dir, "beside")); got != "" && got != "text" {
			t.Errorf("%s: what it leads to is %q", what, got)
		}
	}
	if got := read(t, outside); got != "text" {
		t.Errorf("the file outside is %q", got)
	}
	if list, err := os.ReadDir(filepath.Dir(outside)); err != nil || len(list) != 1 {
		t.Errorf("outside are %v %v", list, err)
	}
}
