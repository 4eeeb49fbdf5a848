package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/cublaslt"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/train/checkpoint"
)

// TestRunWithCublasLt: if cuBLASLt is installed, a run uses it, reports it, and after a stop continues with
// the algorithms it began with, even if another is the fastest by then.
func TestRunWithCublasLt(t *testing.T) {
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	r := everySystem(t)["refocused"]
	dir := t.TempDir()
	// The second algorithm is never used, because its sums have no fixed order.
	lib := &fakegpu.CublasLt{Algorithms: []fakegpu.FakeAlgorithm{{Time: time.Microsecond}, {Time: time.Microsecond / 2, Reduction: 1}}}
	card := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, CublasLt: lib, Slow: 1000}
	use(t, card)
	cache := func(name string) { t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, name)) }
	cache("a")
	auto := []string{"--training.mixed_precision", "auto"}
	train := func(out string, more ...string) said {
		return snug(t, "", append(append([]string{"train", "--config", r.config, "--out", filepath.Join(dir, out), "--hardware.device", "cuda"}, auto...), more...)...)
	}
	wants(t, train("whole"), 0, " fp16 on Tesla T4 (driver ", "CUDA 12.4, cuBLASLt 12.9.3), ", "matmuls: ", "shapes of matmuls by cuBLASLt 12.9.3", "measured now")
	c, _, err := checkpoint.Latest(filepath.Join(dir, "whole"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.File(backend.MatmulsFile); err != nil || !strings.Contains(c.Manifest.Arithmetic, "by cuBLASLt 12.9.3 (") {
		t.Error(c.Manifest.Arithmetic, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	wants(t, train("stopped", "--until", "2"), 4)
	copied := func(name string) {
		t.Helper()
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(dir, "stopped"))); err != nil {
			t.Fatal(err)
		}
	}
	copied("absent")
	copied("off")
	cache("b") // an empty cache
	lib.Algorithms[0].Time = time.Second
	x := train("stopped", "--resume")
	wants(t, x, 0, "by cuBLASLt 12.9.3")
	if strings.Contains(x.out+x.err, "measured now") || strings.Contains(x.out+x.err, "not bit for bit") {
		t.Errorf("a resumed run chose anew:\n%s%s", x.out, x.err)
	}
	sameWeights(t, filepath.Join(dir, "whole"), filepath.Join(dir, "stopped"))
	wants(t, snug(t, "", "eval", filepath.Join(dir, "stopped"), "--hardware.device", "cuda"), 0)

	// Without the library, or with it turned off, a run continues and reports that its bits differ.
	for name, without := range map[string]func() []string{
		"absent": func() []string { card.CublasLt = nil; return nil },
		"off":    func() []string { card.CublasLt = lib; return []string{"--hardware.cublas", "off"} },
	} {
		more := without()
		calls := lib.Calls["cublasLtMatmul"]
		wants(t, train(name, append(more, "--resume")...), 0, "results match those of an uninterrupted run up to rounding, not bit for bit")
		if lib.Calls["cublasLtMatmul"] != calls {
			t.Errorf("%s: the library was called", name)
		}
	}
	card.CublasLt = lib
	// A run that began without the library continues without it.
	wants(t, train("own", "--hardware.cublas", "off", "--until", "2"), 4, "CUDA 12.4, cuBLASLt off), ")
	lib.Algorithms[0].Time = time.Microsecond
	x = train("own", "--resume")
	wants(t, x, 0, "matmuls: snug's kernels, with which this run began")
	if strings.Contains(x.err, "not bit for bit") {
		t.Error(x.err)
	}
}

// TestCublasLtThatCannotBeUsed: doctor reports what is missing from the library; a run reports it only if the
// library is installed but cannot be used.
func TestCublasLtThatCannotBeUsed(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	lib := &fakegpu.CublasLt{}
	card := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}, CublasLt: lib, Slow: 1000}
	use(t, card)
	if x := done(t, "doctor"); !strings.Contains(x.out, "snug's kernels or cuBLASLt 12.9.3 (libcublasLt.so.12)") {
		t.Error(x.out)
	}
	lib.Fail = func(call string) cublaslt.Status {
		if call == "cublasLtCreate" {
			return cublaslt.NotInitialized
		}
		return cublaslt.Success
	}
	const newer = "cuBLASLt 12.9.3 (libcublasLt.so.12): cublasLtCreate: the library cannot use the card: it may be newer than the driver (cuBLAS status 1)"
	if x := done(t, "doctor"); !strings.Contains(x.out, newer) {
		t.Error(x.out)
	}
	if testing.Short() {
		t.Skip("interpreted kernels")
	}
	r := everySystem(t)["refocused"]
	x := done(t, "train", "--config", r.config, "--out", filepath.Join(t.TempDir(), "run"), "--hardware.device", "cuda", "--training.max_steps", "1")
	if !strings.Contains(x.out+x.err, newer) {
		t.Error(x.out, x.err)
	}
	card.CublasLt = nil
	if x := done(t, "doctor"); !strings.Contains(x.out, "cuBLASLt is not installed") {
		t.Error(x.out)
	}
	if x := snug(t, "", "train", "--config", r.config, "--hardware.cublas", "yes"); x.code != 2 || !strings.Contains(x.err, "hardware.cublas") {
		t.Errorf("exit code %d\n%s", x.code, x.err)
	}
}
