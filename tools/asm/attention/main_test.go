package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/tools/asm/sets"
)

// TestCommitted checks that the files in engine/cpu/attention are what this program writes.
func TestCommitted(t *testing.T) {
	// The first line names the command, with its paths.
	body := func(path string) []byte {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := bytes.Cut(text, []byte("\n"))
		return rest
	}
	same := func(paths ...string) {
		for _, path := range paths {
			committed := filepath.Join("../../../engine/cpu/attention", filepath.Base(path))
			if !bytes.Equal(body(path), body(committed)) {
				t.Errorf("%s is stale: run go generate ./engine/cpu/attention", committed)
			}
		}
	}
	for _, file := range []string{"rows512_amd64", "rows256_amd64", "rows128_arm64"} {
		dir := t.TempDir()
		assembly, stubs := filepath.Join(dir, file+".s"), filepath.Join(dir, file+".go")
		file, _, _ := strings.Cut(file, "_")
		cmd := exec.Command("go", "run", ".", "-file", file, "-out", assembly, "-stubs", stubs, "-pkg", "attention")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		same(assembly, stubs)
	}
	dir := t.TempDir()
	if err := writeTables(dir); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(tables) != len(sets.Ports)+1 {
		t.Fatalf("%d tables: %v", len(tables), err)
	}
	same(tables...)
}
