package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	for _, file := range []string{"rows512_amd64", "rows256_amd64", "rows128_arm64"} {
		dir := t.TempDir()
		assembly, stubs := filepath.Join(dir, file+".s"), filepath.Join(dir, file+".go")
		file, _, _ := strings.Cut(file, "_")
		cmd := exec.Command("go", "run", ".", "-file", file, "-out", assembly, "-stubs", stubs, "-pkg", "attention")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
		for _, path := range []string{assembly, stubs} {
			committed := filepath.Join("../../../engine/cpu/attention", filepath.Base(path))
			if !bytes.Equal(body(path), body(committed)) {
				t.Errorf("%s is stale: run go generate ./engine/cpu/attention", committed)
			}
		}
	}
}
