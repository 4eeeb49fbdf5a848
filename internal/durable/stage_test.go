//go:build unix

package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/snug-ml/snug/internal/sources"
)

// Leftovers of killed processes are removed when the next folder is built there, whatever
// its name; what a living process or another host builds stays, and so does anything that
// only looks similar.
func TestStage(t *testing.T) {
	parent := t.TempDir()
	mark := hostMark()
	const gone = 1<<31 - 2 // no system counts that far
	dead := []string{fmt.Sprintf(".p%s%d-1", mark, gone), fmt.Sprintf(".other%s%d-2", mark, gone), fmt.Sprintf(".p%s%d-3.old", mark, gone)}
	stay := []string{
		fmt.Sprintf(".p%s%d-x", mark, os.Getpid()), fmt.Sprintf(".p%s%d-x", mark, os.Getppid()), ".p.snug-elsewhere.example-1-2",
		".p.tmp-1", "p" + mark + "x", fmt.Sprintf("p%s%d-1", mark, gone), ".p" + mark + "none",
	}
	file := filepath.Join(parent, fmt.Sprintf(".file%s%d-1a2b", mark, gone))
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
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
		t.Errorf("%s is not next to what it will be", made)
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

// Processes that write one file or folder at the same time do not interfere: one
// wins, complete, and nothing is left.
func TestWritersAtTheSameTime(t *testing.T) {
	parent := t.TempDir()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			text := strings.Repeat(fmt.Sprint(i), 1<<16)
			for range 20 {
				if err := Replace(filepath.Join(parent, "file"), []byte(text)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	raw, err := os.ReadFile(filepath.Join(parent, "file"))
	if err != nil || len(raw) != 1<<16 || strings.Count(string(raw), string(raw[:1])) != len(raw) {
		t.Errorf("the file has %d bytes of several writers (%v)", len(raw), err)
	}
	if list, err := os.ReadDir(parent); err != nil || len(list) != 1 {
		t.Errorf("left %v (%v)", list, err)
	}
}

// A file that a dead process left under a temporary name is removed when the next one is
// written there; a failed write leaves nothing.
func TestWriteSweeps(t *testing.T) {
	parent := t.TempDir()
	dead := filepath.Join(parent, fmt.Sprintf(".other%s%d-1a2b", hostMark(), 1<<31-2))
	if err := os.WriteFile(dead, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !IsTemporary(dead) || !IsTemporary(Temporary(filepath.Join(parent, "x"))) || IsTemporary("x.json") {
		t.Error("temporary names are not distinguished from others")
	}
	failed := errors.New("failed")
	err := Write(filepath.Join(parent, "file"), func(f *os.File) error {
		_, err := f.WriteString("a part")
		return errors.Join(err, failed)
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	if list, err := os.ReadDir(parent); err != nil || len(list) != 0 {
		t.Errorf("left %v (%v)", list, err)
	}
}

// So are their leftovers among the temporary files.
func TestScratch(t *testing.T) {
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	dead := filepath.Join(parent, fmt.Sprintf(".stdin%s%d-1", hostMark(), 1<<31-2))
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

// Everything that replaces a file or a folder is staged here, under a name that no other
// process uses and that is swept.
func TestEverythingIsStagedHere(t *testing.T) {
	calls := []string{"os.MkdirTemp(", "os.CreateTemp(", "os.Rename(", "os.WriteFile(", "os.Create("}
	allowed := map[string]string{
		"internal/durable/stage.go":        "is here",
		"train/checkpoint/fs.go":           "the file system of the store, which holds the run's lock",
		"data/token/file.go":               "Save fills a folder that is staged",
		"data/token/bpefile.go":            "likewise",
		"data/token/phobert.go":            "likewise",
		"system/cloudbase/store.go":        "fills a folder that is staged",
		"cli/bench.go":                     "tries whether a folder can be written, and leaves nothing",
		"engine/backend/codecache.go":      "tries whether a folder can be written, and leaves nothing",
		"engine/cuda/fakegpu/codecache.go": "stands in for the driver's own cache",
		"session/summary.go":               "a switch of the kernel, no file",
		"tools/quality/main.go":            "a tool of development, which can be asked to keep its folder",
		"tools/samebits/main.go":           "likewise",
		"tools/ptxas/main.go":              "likewise",
		"tools/ptxas/assemble.go":          "likewise",
		"tools/nvrtc/main.go":              "likewise",
		"tools/nvrtc/compile.go":           "likewise",
		"tools/asm/simd/coefficients.go":   "a tool of development",
		"tools/asm/simd/emit.go":           "likewise",
		"tools/asm/simd/dispatch.go":       "likewise",
		"tools/asm/attention/main.go":      "likewise",
		"tools/asm/arm64/writer.go":        "likewise",
	}
	files, err := sources.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f.Path)
		if err != nil {
			t.Fatal(err)
		}
		stages := slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(string(raw), c) })
		if stages != (allowed[f.Name] != "") {
			t.Errorf("%s calls one of %v: %v; use package durable, whose remains are swept, or say in this test why not", f.Name, calls, stages)
		}
	}
}

// Place replaces only absent or empty folders, and changes nothing else.
func TestPlace(t *testing.T) {
	parent := t.TempDir()
	at := func(name string) string { return filepath.Join(parent, name) }
	if err := errors.Join(os.Mkdir(at("empty"), 0o755), os.Mkdir(at("full"), 0o755),
		os.WriteFile(at("full/kept"), []byte("kept"), 0o644), os.WriteFile(at("file"), []byte("kept"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, holds string // a file and its content afterwards
		placed      bool
	}{{"absent", "absent/new", true}, {"empty", "empty/new", true}, {"full", "full/kept", false}, {"file", "file", false}} {
		tmp, err := Stage(at(c.name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tmp, "new"), []byte("new"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Place(tmp, at(c.name)); (err == nil) != c.placed {
			t.Errorf("%s: %v", c.name, err)
		}
		want := "kept"
		if c.placed {
			want = "new"
		}
		if got, err := os.ReadFile(at(c.holds)); err != nil || string(got) != want {
			t.Errorf("%s: %s holds %q, %v; want %q", c.name, c.holds, got, err, want)
		}
	}
}
