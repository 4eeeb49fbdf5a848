package plan_test

import (
	"strings"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/plan"
)

// TestCalibrate: calibration gives each precision the rates that it measured for it, all of them valid.
func TestCalibrate(t *testing.T) {
	r, err := plan.Calibrate(backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	r.Workers = 2
	if !r.Valid() || r.Measurements != 1 {
		t.Errorf("not valid: %+v", r)
	}
	for _, c := range []struct {
		p         device.Precision
		half, att float64
	}{{device.FP32, r.F32, r.Attention}, {device.BF16, r.BF16, r.AttentionBF16}, {device.FP16, r.F16, r.Attention}} {
		s := r.In(c.p)
		if c.half <= 0 || c.att <= 0 || s.Half != c.half || s.Full != r.F32 || !strings.Contains(s.Source, "2 workers") {
			t.Errorf("%s: %+v of %+v", c.p, s, r)
		}
		if s.Vector != r.Vector || s.Bandwidth != r.Bandwidth || s.Launch != r.Launch.Seconds() || s.Vector <= 0 || s.Bandwidth <= 0 || s.Launch <= 0 {
			t.Errorf("%s: %+v of %+v", c.p, s, r)
		}
	}
}
