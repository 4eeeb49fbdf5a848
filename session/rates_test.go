package session

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/plan"
)

func ratesAt(x float64) plan.Rates {
	return plan.Rates{F32: x, BF16: 2 * x, F16: x / 2, Attention: x / 4, AttentionBF16: x / 4, Vector: x / 10, Bandwidth: x / 10,
		Launch: time.Microsecond, Workers: 2, Measurements: 1}
}

// TestRatesAreKept: the best rates are kept separately for each processor, set of kernels and number of
// workers, and a busy second lowers none of them.
func TestRatesAreKept(t *testing.T) {
	k := keptRates(filepath.Join(t.TempDir(), "not", "there", "yet"))
	p := processor{"A processor", "cpu kernels avx2", 2}
	if got := k.keep(p, ratesAt(4e11)); got != ratesAt(4e11) {
		t.Errorf("the first measurement is %+v", got)
	}
	want := ratesAt(4e11)
	want.Measurements = 2
	if got := k.keep(p, ratesAt(1e10)); got != want {
		t.Errorf("after a busy second: %+v, want %+v", got, want)
	}
	want = ratesAt(5e11)
	want.Measurements = 3
	if got := k.keep(p, ratesAt(5e11)); got != want {
		t.Errorf("after a better one: %+v, want %+v", got, want)
	}
	if got, ok := k.of(p); !ok || got != want {
		t.Errorf("kept is %+v (%v), want %+v", got, ok, want)
	}
	for _, other := range []processor{{"Another", p.Kernels, 2}, {p.Model, "cpu kernels avx512", 2}, {p.Model, p.Kernels, 1}} {
		if got, ok := k.of(other); ok {
			t.Errorf("%+v has rates without a measurement: %+v", other, got)
		}
	}
}

// TestRatesAreReused: a run measures its processor unless it reuses rates and enough measurements are stored.
func TestRatesAreReused(t *testing.T) {
	defer func(was bool) { reuseRates = was }(reuseRates)
	k := keptRates(t.TempDir())
	p := processor{"A processor", "cpu kernels avx2", 1}
	stored := ratesAt(4e11)
	stored.Workers, stored.Measurements = 1, enoughMeasurements-1
	k.keep(p, stored)
	for _, c := range []struct {
		reuse bool
		want  int
	}{{true, enoughMeasurements}, {true, enoughMeasurements}, {false, enoughMeasurements + 1}} {
		reuseRates = c.reuse
		r, err := k.calibrated(p, backend.CPU(1))
		if err != nil {
			t.Fatal(err)
		}
		if r.Measurements != c.want {
			t.Errorf("reuse %v: %d measurements, want %d", c.reuse, r.Measurements, c.want)
		}
	}
}

// TestRatesOfADamagedFile: a damaged or wrong file is measured again and replaced. If nothing can be stored,
// the measurement is used as it is.
func TestRatesOfADamagedFile(t *testing.T) {
	p := processor{"A processor", "cpu kernels avx2", 2}
	good := func(t *testing.T, p processor, r plan.Rates) string {
		k := keptRates(t.TempDir())
		k.keep(p, r)
		text, err := os.ReadFile(k.path(p))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	whole := good(t, p, ratesAt(9e15/2))
	for name, text := range map[string]string{
		"empty": "", "cut": whole[:len(whole)/2], "words": "not JSON", "another document": `{"version": 1}`, "null": "null",
		"another processor's": good(t, processor{"Another", p.Kernels, 2}, ratesAt(9e14)),
		"no rate":             `{"processor": {"model": "A processor", "kernels": "cpu kernels avx2", "workers": 2}, "rates": {"f32": 1e300, "workers": 2, "measurements": 1}}`,
		"twice":               `{"processor": {}, ` + whole[1:],
	} {
		t.Run(name, func(t *testing.T) {
			k := keptRates(t.TempDir())
			if err := os.WriteFile(k.path(p), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
			if got := k.keep(p, ratesAt(4e11)); got != ratesAt(4e11) {
				t.Errorf("%+v is not what was measured", got)
			}
			if got, ok := k.of(p); !ok || got != ratesAt(4e11) {
				t.Errorf("it was not replaced: %+v, %v", got, ok)
			}
		})
	}
	folder := keptRates(t.TempDir())
	if err := os.MkdirAll(filepath.Join(folder.path(p), "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]keptRates{"no folder": "", "a folder for a file": folder, "a file for the folder": keptRates(file)} {
		if got := k.keep(p, ratesAt(4e11)); got != ratesAt(4e11) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestShareOfABeatenPeak: a share never exceeds 1. Training that is faster than the peak raises it, for later
// runs too.
func TestShareOfABeatenPeak(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if got := string(ratesFolder()); filepath.Dir(got) != os.Getenv("XDG_CACHE_HOME") {
		t.Skipf("the cache folder %s is not named by XDG_CACHE_HOME on this system", got)
	}
	s := &Setup{Host: device.DetectHost(), Threads: 2}
	rates := ratesFolder().keep(s.processor(), ratesAt(4e11))
	s.rates = &rates
	report := &plan.Report{Run: plan.Run{Settings: plan.Settings{Precision: device.BF16}}, Speed: rates.In(device.BF16)}
	for _, c := range []struct{ rate, share, peak float64 }{{2e11, .25, 8e11}, {16e11, 1, 16e11}, {8e11, .5, 16e11}, {1e300, 1, 16e11}} {
		if got := s.Share(report, c.rate); got != c.share || report.Speed.Peak != c.peak {
			t.Errorf("%g is %g of %g, want %g of %g", c.rate, got, report.Speed.Peak, c.share, c.peak)
		}
	}
	s.keepPeak()
	if got, ok := ratesFolder().of(s.processor()); !ok || got.BF16 != 16e11 || got.F32 != 4e11 {
		t.Errorf("kept is %+v (%v)", got, ok)
	}
	if got := s.Share(&plan.Report{}, 1e9); got != 0 {
		t.Errorf("without a peak the share is %g", got)
	}
}
