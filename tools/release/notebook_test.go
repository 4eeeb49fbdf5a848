package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The notebook's cells find a release under the names that it has, in a folder whose name has spaces, and take
// nothing that is not whole: what was cut off before is removed, and a wrong checksum ends the cell.
func TestNotebookInstalls(t *testing.T) {
	for _, name := range []string{"bash", "curl", "sha256sum", "tar"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	if runtime.GOOS != "linux" {
		t.Skip("the notebook is for Linux")
	}
	script, err := os.ReadFile("../../notebooks/colab.sh")
	if err != nil {
		t.Fatal(err)
	}
	var cells []string
	for _, title := range []string{"Settings that the other cells read", "Install"} {
		_, rest, found := strings.Cut(string(script), "# %% "+title+"\n")
		if !found {
			t.Fatalf("the notebook has no cell %q", title)
		}
		cell, _, _ := strings.Cut(rest, "\n# %%")
		cells = append(cells, cell)
	}
	at := time.Unix(1_700_000_000, 0).UTC()
	dist := filepath.Join(t.TempDir(), "a release")
	if err := os.Mkdir(dist, 0o777); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "snug")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"this is $1\"\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, x := range targets {
		archive := filepath.Join(dist, x.name()+".tar.gz")
		if err := writeArchive(archive, at, program); err != nil {
			t.Fatal(err)
		}
		files = append(files, archive)
	}
	if err := writeSums(filepath.Join(dist, sums), files); err != nil {
		t.Fatal(err)
	}
	install := func(dir string) (string, error) {
		c := exec.Command("bash", "-c", "set -euo pipefail\n"+strings.Join(cells, "\n"))
		c.Dir = dir
		// Without a snug that is installed here.
		c.Env = []string{"PATH=/usr/bin:/bin", "RELEASES=file://" + strings.ReplaceAll(dist, " ", "%20"), "RUN=a run", "HOME=" + dir}
		out, err := c.CombinedOutput()
		return string(out), err
	}
	work := filepath.Join(t.TempDir(), "a folder")
	if err := os.MkdirAll(filepath.Join(work, "install.part", "source"), 0o777); err != nil {
		t.Fatal(err)
	}
	out, err := install(work)
	if err != nil || !strings.Contains(out, "this is --version") {
		t.Fatalf("%v\n%s", err, out)
	}
	if got, err := exec.Command("bash", "-c", `. "$0"; echo "$RUN"`, filepath.Join(work, "settings.sh")).Output(); err != nil || string(got) != "a run\n" {
		t.Errorf("the run is %q, %v", got, err)
	}
	if out, err := install(work); err != nil || !strings.Contains(out, "it is here already") {
		t.Errorf("the second time: %v\n%s", err, out)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f, bytes.TrimRight(text[:len(text)-9], "\x00"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	broken := t.TempDir()
	if out, err := install(broken); err == nil || !strings.Contains(out, "FAILED") {
		t.Errorf("an archive that was cut off: %v\n%s", err, out)
	}
	if list, err := os.ReadDir(filepath.Join(broken, "bin")); err != nil || len(list) > 0 {
		t.Errorf("%v, %v: installed of an archive that was cut off", list, err)
	}
}
