//go:build unix

package durable

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What killed processes left goes with the next folder that is built there,
// whatever it will be called; what a living process or another host builds
// stays, and so does what only looks alike.
func TestStage(t *testing.T) {
	parent := t.TempDir()
	mark := stageMark()
	const gone = 1<<31 - 2 // no system counts that far
	dead := []string{fmt.Sprintf(".p%s%d-1", mark, gone), fmt.Sprintf(".other%s%d-2", mark, gone), fmt.Sprintf(".p%s%d-3.old", mark, gone)}
	stay := []string{
		fmt.Sprintf(".p%s%d-x", mark, os.Getpid()), fmt.Sprintf(".p%s%d-x", mark, os.Getppid()), ".p.snug-elsewhere.example-1-2",
		".p.tmp-1", "p" + mark + "x", fmt.Sprintf("p%s%d-1", mark, gone), ".p" + mark + "none",
	}
	for _, name := range append(slices.Clone(dead), stay...) {
		if err := os.MkdirAll(filepath.Join(parent, name, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	made, err := Stage(filepath.Join(parent, "p"))
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(made) != parent {
		t.Errorf("%s is not beside what it will be", made)
	}
	stay = append(stay, filepath.Base(made))
	slices.Sort(stay)
	entries, err := os.ReadDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if !slices.Equal(left, stay) {
		t.Errorf("left %q, want %q", left, stay)
	}
}

// So does what they left among the temporary files.
func TestScratch(t *testing.T) {
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	dead := filepath.Join(parent, fmt.Sprintf(".stdin%s%d-1", stageMark(), 1<<31-2))
	if err := os.MkdirAll(filepath.Join(dead, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	a, err := Scratch("stdin")
	if err != nil {
		t.Fatal(err)
	}
	b, err := Scratch("stdin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("what was left is still there: %v", err)
	}
	for _, dir := range []string{a, b} {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 || filepath.Dir(dir) != parent {
			t.Errorf("%s: %v %v", dir, st, err)
		}
	}
}

// Everything temporary is made here, so that nothing is left for ever.
func TestEverythingTemporaryIsMadeHere(t *testing.T) {
	allowed := map[string]string{
		"internal/durable/stage.go": "is here",
		"data/safetensors/write.go": "writes beside the file, within a stage where a folder is exported",
		"tools/quality/main.go":     "a tool of development, which is told to keep its folder",
	}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		makes := strings.Contains(string(raw), "os.MkdirTemp(") || strings.Contains(string(raw), "os.CreateTemp(")
		if rel = filepath.ToSlash(rel); makes != (allowed[rel] != "") {
			t.Errorf("%s makes temporary files: %v; use durable.Scratch or durable.Stage, whose remains are swept, or say in this test why not", rel, makes)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
