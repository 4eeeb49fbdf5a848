package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAdopt(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	save(t, s, 5)
	final := filepath.Join(s.Dir(), stepName(5))
	arrive := func() string {
		t.Helper()
		if err := os.CopyFS(final+".pull", os.DirFS(final)); err != nil {
			t.Fatal(err)
		}
		return filepath.Base(final) + ".pull"
	}
	if _, err := s.Adopt(arrive()); err == nil || !strings.Contains(err.Error(), "already exists and is intact") {
		t.Errorf("over a whole one: %v", err)
	}
	if err := os.Truncate(filepath.Join(final, WeightsFile), 9); err != nil {
		t.Fatal(err)
	}
	if path, err := s.Adopt(filepath.Base(final) + ".pull"); err != nil || path != final {
		t.Errorf("over a damaged one: %s %v", path, err)
	}
	if u, rejected := latest(t, dir); u != 5 || rejected != nil {
		t.Errorf("latest %d, rejected %v", u, rejected)
	}
	if err := os.Truncate(filepath.Join(s.Dir(), arrive(), StateFile), 9); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Adopt(filepath.Base(final) + ".pull"); err == nil || !strings.Contains(err.Error(), StateFile) {
		t.Errorf("a damaged one: %v", err)
	}
	for _, name := range []string{filepath.Base(final), "notes.pull", "step-5.pull", "../step-00000005.pull"} {
		if _, err := s.Adopt(name); err == nil || !strings.Contains(err.Error(), "not named like a checkpoint") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
