package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCommitted checks that the files in engine/cuda/ptxsim are what this program writes.
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
	dir := t.TempDir()
	assembly, stubs := filepath.Join(dir, "lanes_amd64.s"), filepath.Join(dir, "lanes_amd64.go")
	cmd := exec.Command("go", "run", ".", "-out", assembly, "-stubs", stubs, "-pkg", "ptxsim")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	for _, path := range []string{assembly, stubs} {
		committed := filepath.Join("../../../engine/cuda/ptxsim", filepath.Base(path))
		if !bytes.Equal(body(path), body(committed)) {
			t.Errorf("%s is stale: run go generate ./engine/cuda/ptxsim", committed)
		}
	}
}
