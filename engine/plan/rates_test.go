package plan_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/plan"
)

func someRates() plan.Rates {
	return plan.Rates{F32: 4e11, BF16: 8e11, F16: 2e11, Attention: 1e11, AttentionBF16: 2e11, Vector: 2e10, Bandwidth: 4e10,
		Launch: time.Microsecond, Workers: 2, Measurements: 1}
}

// TestPeakIsNamed: a peak is the highest matmul rate seen in the precision or in fp32, and says which. If
// fp16 is computed in fp32, the peak is that of fp32.
func TestPeakIsNamed(t *testing.T) {
	emulated := someRates()
	emulated.BF16 = 3e11
	converts := someRates()
	converts.F16 = 5e11
	attends := someRates()
	attends.AttentionBF16 = 9e11
	for _, c := range []struct {
		rates plan.Rates
		p     device.Precision
		peak  float64
		name  string
	}{
		{someRates(), device.FP32, 4e11, "measured fp32 peak"},
		{someRates(), device.BF16, 8e11, "measured bf16 peak"},
		{someRates(), device.FP16, 4e11, "measured fp32 peak"},
		{emulated, device.BF16, 4e11, "measured fp32 peak"},
		{converts, device.FP16, 5e11, "measured fp16 peak"},
		{attends, device.BF16, 9e11, "measured bf16 peak"},
	} {
		s := c.rates.In(c.p)
		if s.Peak != c.peak || s.PeakName != c.name {
			t.Errorf("%s of %+v: %g, %s; want %g, %s", c.p, c.rates, s.Peak, s.PeakName, c.peak, c.name)
		}
		if s.Half > s.Peak || s.Full > s.Peak || s.Attention*s.Half > s.Peak {
			t.Errorf("%s: a rate is above the peak: %+v", c.p, s)
		}
	}
	if s := onCard(t, "T4").Speed(device.FP16); s.PeakName != "specified fp16 peak" {
		t.Errorf("a T4's peak is called %q", s.PeakName)
	}
}

// TestBestOfSeveral: the best of several measurements is the best in each figure, in any order, and a busy
// one changes none.
func TestBestOfSeveral(t *testing.T) {
	a, busy := someRates(), someRates()
	busy.F32, busy.BF16, busy.F16, busy.Attention, busy.AttentionBF16, busy.Vector, busy.Bandwidth = 1e9, 1e9, 1e9, 1e9, 1e9, 1e9, 1e9
	busy.Launch = time.Millisecond
	want := a
	want.Measurements = 2
	if got := a.Best(busy); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := busy.Best(a); got != want {
		t.Errorf("the other way round: %+v, want %+v", got, want)
	}
	// Each figure counts separately, including those that a later change adds.
	for i := range reflect.TypeFor[plan.Rates]().NumField() {
		f := reflect.TypeFor[plan.Rates]().Field(i)
		if f.Type.Kind() != reflect.Float64 {
			continue
		}
		b := busy
		reflect.ValueOf(&b).Elem().Field(i).SetFloat(9e12)
		if got := reflect.ValueOf(a.Best(b)).Field(i).Float(); got != 9e12 {
			t.Errorf("%s: the better one of two was not kept", f.Name)
		}
		for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1), 1e300} {
			reflect.ValueOf(&b).Elem().Field(i).SetFloat(bad)
			if b.Valid() {
				t.Errorf("%s: %g is no rate, yet valid", f.Name, bad)
			}
		}
	}
	if s := want.In(device.BF16).Source; !strings.Contains(s, "on 2 workers (the best of 2)") {
		t.Errorf("the source does not say of how many: %s", s)
	}
}

// TestPeakIsBeaten: training above the peak raises it to exactly that rate, in every precision. Training
// below it, or at a rate that no processor reaches, changes nothing.
func TestPeakIsBeaten(t *testing.T) {
	for _, p := range []device.Precision{device.FP32, device.BF16, device.FP16} {
		r := someRates()
		peak := r.In(p).Peak
		if s := r.Beaten(p, 1.5*peak).In(p); s.Peak != 1.5*peak || s.PeakName != "measured "+string(p)+" peak" {
			t.Errorf("%s: the peak is %g, %s; want %g", p, s.Peak, s.PeakName, 1.5*peak)
		}
		for _, rate := range []float64{0, peak / 2, peak, math.NaN(), math.Inf(1), 1e300} {
			if got := r.Beaten(p, rate); got != r {
				t.Errorf("%s: %g changed %+v to %+v", p, rate, r, got)
			}
		}
	}
}
