//go:build unix

package durable

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
