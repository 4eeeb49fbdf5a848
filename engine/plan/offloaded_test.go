package plan_test

import (
	"encoding/json"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
)

// TestSettingsAreReadAsWritten: settings survive being written and read, as when rank 0 sends them.
func TestSettingsAreReadAsWritten(t *testing.T) {
	for o := plan.OffloadNothing; o <= plan.OffloadAll; o++ {
		s := plan.Settings{MicroBatch: 3, Accumulation: 2, Recompute: pass.RecomputeSlices, Slices: 2, Budget: 7, Precision: device.BF16, CEChunk: 5, Offload: o, Compress: true, NarrowGradients: true}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var got plan.Settings
		if err := json.Unmarshal(b, &got); err != nil || got != s {
			t.Errorf("%s is read as %+v (%v)", b, got, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"offload":"some"}`), &plan.Settings{}); err == nil {
		t.Error("no error")
	}
}
