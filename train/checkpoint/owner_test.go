package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/train/rundir"
)

// content is every file below a folder, by name.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}

// same fails if a folder has changed.
func same(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	after := content(t, dir)
	for path, text := range before {
		if after[path] != text {
			t.Errorf("%s was changed or removed", path)
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			t.Errorf("%s was added", path)
		}
	}
}

// A run whose folder is removed, replaced or moved while it trains writes nothing
// into the folder that has its name now, and removes nothing there.
func TestFolderTakenAwayWhileTraining(t *testing.T) {
	gone := func(t *testing.T, s *Store, what string) {
		t.Helper()
		for name, err := range map[string]error{
			"check": s.Check(), "save": s.Save(context.Background(), testSnapshot(6)), "async": s.SaveAsync(testSnapshot(7)),
		} {
			var gone *rundir.GoneError
			if !errors.As(err, &gone) || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "with another --out") {
				t.Errorf("%s: %v, want %q", name, err, what)
			}
		}
	}
	// taken puts another run, with more updates, into the folder.
	taken := func(t *testing.T, run string) map[string]string {
		t.Helper()
		other := open(t, run, Options{})
		save(t, other, 1, 2, 3)
		return content(t, run)
	}
	for _, c := range []struct {
		name string
		do   func(t *testing.T, s *Store, run string)
	}{
		{"removed", func(t *testing.T, s *Store, run string) {
			if err := os.RemoveAll(run); err != nil {
				t.Fatal(err)
			}
			gone(t, s, "was removed")
			same(t, run, nil)
		}},
		{"replaced", func(t *testing.T, s *Store, run string) {
			if err := os.RemoveAll(run); err != nil {
				t.Fatal(err)
			}
			before := taken(t, run)
			gone(t, s, "another took its place")
			same(t, run, before)
		}},
		{"emptied and taken", func(t *testing.T, s *Store, run string) {
			for _, name := range []string{rundir.LockFile, Folder} {
				if err := os.RemoveAll(filepath.Join(run, name)); err != nil {
					t.Fatal(err)
				}
			}
			before := taken(t, run)
			gone(t, s, "was taken by process")
			same(t, run, before)
		}},
		{"checkpoints removed", func(t *testing.T, s *Store, run string) {
			if err := os.RemoveAll(filepath.Join(run, Folder)); err != nil {
				t.Fatal(err)
			}
			gone(t, s, "has lost its checkpoints")
		}},
		{"checkpoints replaced", func(t *testing.T, s *Store, run string) {
			aside := run + ".aside"
			if err := errors.Join(os.Rename(filepath.Join(run, Folder), aside), os.Mkdir(filepath.Join(run, Folder), 0o755)); err != nil {
				t.Fatal(err)
			}
			before := content(t, aside)
			gone(t, s, "has other checkpoints")
			same(t, aside, before)
			same(t, filepath.Join(run, Folder), nil)
		}},
		{"moved, and the name taken", func(t *testing.T, s *Store, run string) {
			if runtime.GOOS != "linux" {
				t.Skip("only the Linux kernel tells where a folder is")
			}
			away := run + ".away"
			if err := os.Rename(run, away); err != nil {
				t.Fatal(err)
			}
			before := taken(t, run)
			save(t, s, 6, 7)
			same(t, run, before)
			if got := updates(t, filepath.Join(away, Folder)); !slices.Equal(got, []int64{6, 7}) {
				t.Errorf("the folder that was moved holds %v", got)
			}
			if u, rejected := latest(t, away); u != 7 || rejected != nil {
				t.Errorf("latest %d, rejected %v", u, rejected)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := filepath.Join(t.TempDir(), "run")
			var moved []string
			s := open(t, run, Options{KeepLast: 2, KeepBest: -1, OnEvent: func(e Event) {
				if e.Kind == Moved {
					moved = append(moved, e.Path)
				}
			}})
			save(t, s, 4, 5)
			c.do(t, s, run)
			if want := map[bool]int{true: 1}[strings.HasPrefix(c.name, "moved")]; len(moved) != want {
				t.Errorf("told of moves to %v", moved)
			}
		})
	}
}

// foreign puts checkpoints of another run into a folder.
func foreign(t *testing.T, dir string, updates ...int64) {
	t.Helper()
	other := open(t, t.TempDir(), Options{KeepLast: 100})
	save(t, other, updates...)
	for _, u := range updates {
		if err := os.CopyFS(filepath.Join(dir, stepName(u)), os.DirFS(filepath.Join(other.Dir(), stepName(u)))); err != nil {
			t.Fatal(err)
		}
	}
}

// Checkpoints of another run are neither loaded nor removed nor replaced.
func TestForeignCheckpoints(t *testing.T) {
	run := t.TempDir()
	s := open(t, run, Options{KeepLast: 1, KeepBest: -1, Attempts: 1})
	save(t, s, 10, 11)
	foreign(t, s.Dir(), 2, 12, 6000)
	u, rejected := latest(t, run)
	var other *ForeignError
	if u != 11 || len(rejected) != 2 || !errors.As(rejected[0].Err, &other) || other.Owner != s.home.ID() {
		t.Errorf("latest %d, rejected %v", u, rejected)
	}
	if err := s.Save(context.Background(), testSnapshot(12)); !errors.As(err, &other) || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("over another run's checkpoint: %v", err)
	}
	save(t, s, 13)
	if got := updates(t, s.Dir()); !slices.Equal(got, []int64{2, 12, 13, 6000}) {
		t.Errorf("left %v", got)
	}
	// Going back does not remove them either.
	s.ContinuedFrom(10)
	save(t, s, 14)
	if got := updates(t, s.Dir()); !slices.Equal(got, []int64{2, 12, 14, 6000}) {
		t.Errorf("left after going back %v", got)
	}
	// Where the run of a folder is unknown, no checkpoint is taken.
	if err := s.home.Begin(""); err != nil {
		t.Fatal(err)
	}
	if _, rejected, err := Latest(run); !errors.Is(err, ErrNone) || len(rejected) != 4 || !strings.Contains(fmt.Sprint(rejected[0].Err), "others next to it to other runs") {
		t.Errorf("%v, rejected %v", err, rejected)
	}
	// Starting over was requested: all are removed.
	if err := s.StartOver(); err != nil {
		t.Fatal(err)
	}
	save(t, s, 1, 2)
	if got := updates(t, s.Dir()); !slices.Equal(got, []int64{2}) {
		t.Errorf("left after starting over %v", got)
	}
}

// The identity is that of the run, not of the process; a run of before there
// were identities gets one, and a new run another.
func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	id := func(u int64) string {
		t.Helper()
		m, err := ReadManifest(filepath.Join(dir, Folder, stepName(u)))
		if err != nil {
			t.Fatal(err)
		}
		return m.Run
	}
	session := func(u int64, prepare func(s *Store) error) {
		t.Helper()
		s, err := Open(dir, Options{KeepBest: -1})
		if err == nil {
			err = prepare(s)
		}
		if err != nil {
			t.Fatal(err)
		}
		save(t, s, u)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	same := func(*Store) error { return nil }
	session(1, func(s *Store) error { return s.home.Begin("") }) // as older versions do
	if id(1) != "" {
		t.Fatal(id(1))
	}
	session(2, same)
	session(3, same)
	if id(2) == "" || id(3) != id(2) {
		t.Errorf("identities %q and %q", id(2), id(3))
	}
	first := id(2)
	if u, rejected := latest(t, dir); u != 3 || rejected != nil {
		t.Errorf("latest %d, rejected %v", u, rejected)
	}
	session(4, (*Store).StartOver)
	if id(4) == "" || id(4) == first {
		t.Errorf("the new run is %q as well", id(4))
	}
	if got := updates(t, filepath.Join(dir, Folder)); !slices.Equal(got, []int64{4}) {
		t.Errorf("starting over left %v", got)
	}
}

// A checkpoint that is a symbolic link is removed, not what it leads to.
func TestRetentionOfALink(t *testing.T) {
	s := open(t, t.TempDir(), Options{KeepLast: 1, KeepBest: -1})
	save(t, s, 1)
	outside := filepath.Join(t.TempDir(), "precious")
	if err := errors.Join(os.Rename(filepath.Join(s.Dir(), stepName(1)), outside), os.Symlink(outside, filepath.Join(s.Dir(), stepName(1)))); err != nil {
		t.Skip(err)
	}
	before := content(t, outside)
	save(t, s, 2, 3)
	if got := updates(t, s.Dir()); !slices.Equal(got, []int64{3}) {
		t.Errorf("left %v", got)
	}
	same(t, outside, before)
}
