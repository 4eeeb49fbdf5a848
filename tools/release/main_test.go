package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// A release has what its archives, checksums and bills list; this program stands in for snug.
func TestRelease(t *testing.T) {
	dir, at := t.TempDir(), time.Unix(1_700_000_000, 0).UTC()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "snug")
	if err := os.Link(own, program); err != nil {
		content, err := os.ReadFile(own)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, content, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	archive, bill, sums := filepath.Join(dir, "snug-linux-amd64.tar.gz"), filepath.Join(dir, "snug.cdx.json"), filepath.Join(dir, "SHA256SUMS")
	make := func() []byte {
		if err := writeArchive(archive, at, program, "../../LICENSE"); err != nil {
			t.Fatal(err)
		}
		if err := writeBill(bill, program, at); err != nil {
			t.Fatal(err)
		}
		if err := writeSums(sums, []string{archive, bill}); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(sums)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	if !bytes.Equal(make(), make()) {
		t.Error("the same files gave other bytes")
	}
	var b struct {
		SpecVersion string
		Components  []component
	}
	raw, err := os.ReadFile(bill)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &b); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, c := range b.Components {
		found[c.Name] = c.Version != ""
	}
	if b.SpecVersion != "1.6" || !found["go"] || !found["github.com/alecthomas/kong"] {
		t.Errorf("the bill is %s", raw)
	}
	run := func(name string, args ...string) string {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
		c := exec.Command(name, args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run("sha256sum", "--check", "SHA256SUMS")
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o777); err != nil {
		t.Fatal(err)
	}
	// As the notebook unpacks it.
	run("tar", "-xzf", archive, "-C", "bin")
	if info, err := os.Stat(filepath.Join(dir, "bin", "snug")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("bin/snug cannot be run: %v, %v", info, err)
	}
}
