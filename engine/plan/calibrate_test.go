package plan_test

import (
	"testing"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/plan"
)

func TestCalibrate(t *testing.T) {
	start := time.Now()
	r, err := plan.Calibrate(backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v: %+v", time.Since(start), r)
	for _, p := range []device.Precision{device.FP32, device.BF16, device.FP16} {
		s := r.In(p)
		t.Log(p, s.Source)
		// The slowest machine that this could run on, and more than any has.
		if s.Half < 1e8 || s.Half > 1e15 || s.Vector < 1e7 || s.Bandwidth < 1e8 || s.Bandwidth > 1e13 || s.Launch <= 0 || s.Launch > 1e-2 {
			t.Errorf("%s: %+v", p, s)
		}
	}
}
