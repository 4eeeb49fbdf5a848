package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/nn/hf"
)

// Gradients in 16 bits are a rung of the ladder that says to the byte what it saves; a refusal
// names them only where nothing that keeps the bits is enough, or beside it.
func TestGradientsAreARung(t *testing.T) {
	m := hf.NeoX{Vocab: 4000, D: 256, Layers: 2, Heads: 4, FF: 1024, MaxPositions: 64, RotaryPct: .25, RotaryBase: 10000, Activation: "gelu", Eps: 1e-5, InitStd: .02}
	target := plan.OnCard(card(t, "T4"))
	s := plan.Settings{MicroBatch: 1, Accumulation: 4, Precision: device.FP32}
	compile := compiler(m, 32, engine.CUDA)
	rungs, err := planner(m, 32, target).Ladder(s)
	if err != nil {
		t.Fatal(err)
	}
	bytes := func(s plan.Settings) (gradients, all int64) {
		p, err := compile(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range p.States {
			if s.Role == graph.Gradient {
				gradients += s.Type.Bytes()
			}
		}
		return gradients, p.Layout.Bytes
	}
	narrow := s
	narrow.NarrowGradients = true
	var alone *plan.Rung
	for i, r := range rungs {
		if r.Settings == narrow {
			alone = &rungs[i]
		}
	}
	if alone == nil || alone.Change != "training.gradient_dtype: bf16" {
		t.Fatalf("no rung of\n%s\nis gradients in 16 bits", plan.FormatLadder(rungs))
	}
	g0, b0 := bytes(s)
	g1, b1 := bytes(narrow)
	if alone.Saves != b0-b1 || g0-g1 < g0*49/100 {
		t.Errorf("the rung saves %d bytes, the program has %d less, and %d of %d of accumulators", alone.Saves, b0-b1, g1, g0)
	}
	// As much memory as the least without rounding: it is not named as the smallest change.
	least := rungs[0].Total
	for _, r := range rungs {
		if !r.Settings.NarrowGradients {
			least = min(least, r.Total)
		}
	}
	for _, less := range []int64{0, 1} {
		target.Budget = least - less
		_, err := planner(m, 32, target).Check(s)
		var no *plan.DoesNotFit
		if !errors.As(err, &no) || no.Smallest == nil {
			t.Fatalf("with %d bytes: %v", target.Budget, err)
		}
		if rounds := strings.Contains(no.Smallest.Change, "gradient_dtype: bf16"); rounds != (less > 0) {
			t.Errorf("with %d bytes the smallest change is %s", target.Budget, no.Smallest.Change)
		}
	}
}
