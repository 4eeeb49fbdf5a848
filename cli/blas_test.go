package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cpu/blas"
	"github.com/snug-ml/snug/train/checkpoint"
)

// TestRunWithBLAS: with a BLAS library, a run records what computes each matmul, and uses the same after a
// stop. A run that continues without the library reports that its bits differ.
func TestRunWithBLAS(t *testing.T) {
	if _, err := blas.Open(""); errors.As(err, new(*blas.Absent)) {
		t.Skip("no BLAS library is installed (Debian: apt-get install libopenblas0):", err)
	}
	r := everySystem(t)["refocused"]
	dir := t.TempDir()
	train := func(out string, more ...string) said {
		return snug(t, "", append([]string{"train", "--config", r.config, "--out", filepath.Join(dir, out), "--hardware.device", "cpu", "--training.mixed_precision", "fp32"}, more...)...)
	}
	record := func(run string) (text, arithmetic string) {
		t.Helper()
		c, _, err := checkpoint.Latest(filepath.Join(dir, run))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		b, err := c.File(backend.MatmulsFile)
		if err != nil {
			t.Fatal(err)
		}
		return string(b), c.Manifest.Arithmetic
	}
	auto := []string{"--hardware.blas", "auto"}
	wants(t, train("stopped", append(auto, "--until", "2")...), 4, "matmuls: ", "measured now")
	for _, name := range []string{"twin", "off"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(dir, "stopped"))); err != nil {
			t.Fatal(err)
		}
	}
	began, arithmetic := record("stopped")
	for _, name := range []string{"stopped", "twin"} {
		x := train(name, append(auto, "--resume")...)
		wants(t, x, 0, "matmuls: ")
		if strings.Contains(x.out+x.err, "measured now") || strings.Contains(x.out+x.err, "not bit for bit") {
			t.Errorf("a resumed run chose anew:\n%s%s", x.out, x.err)
		}
		if now, in := record(name); now != began || in != arithmetic {
			t.Errorf("%s continued in %s with\n%s\nand began in %s with\n%s", name, in, now, arithmetic, began)
		}
	}
	sameWeights(t, filepath.Join(dir, "stopped"), filepath.Join(dir, "twin"))
	x := train("off", "--hardware.blas", "off", "--resume")
	wants(t, x, 0)
	if differ := strings.Contains(arithmetic, "shapes of matmuls by"); differ != strings.Contains(x.out+x.err, "not bit for bit") {
		t.Errorf("arithmetic %s; continued without the library:\n%s%s", arithmetic, x.out, x.err)
	}
	// A run that began without a library continues without it.
	wants(t, train("own", "--until", "2"), 4)
	wants(t, train("own", append(auto, "--resume")...), 0, "matmuls: snug's kernels, with which this run began")

	wants(t, train("none", "--hardware.blas", "/nowhere/libblas.so"), 1, "hardware.blas /nowhere/libblas.so: no BLAS library can be loaded: ", "want off, auto or the path of one")
}
