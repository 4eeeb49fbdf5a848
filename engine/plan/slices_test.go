package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/nn/hf"
)

// TestAutoTakesSlicesLast: auto uses slices if no recipe fits, and as few as possible. What does not fit even
// with slices is refused with slices on the ladder.
func TestAutoTakesSlicesLast(t *testing.T) {
	m := hf.NeoX{Vocab: 50, D: 16, Layers: 2, Heads: 2, FF: 512, MaxPositions: 64, RotaryPct: .5, RotaryBase: 10000,
		Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: .02}
	s := plan.Settings{MicroBatch: 8, Accumulation: 2, Precision: device.FP32, CEChunk: 64}
	total := func(r pass.Recompute, parts int) int64 {
		s := s
		s.Recompute, s.Slices = r, parts
		r2, err := planner(m, 40, host(0)).Plan(s)
		if err != nil {
			t.Fatal(err)
		}
		return r2.Total
	}
	uniform := min(total(pass.RecomputeActivation, 0), total(pass.RecomputeSelective, 0), total(pass.RecomputeWide, 0), total(pass.RecomputeFull, 0))
	two, four, eight := total(pass.RecomputeSlices, 2), total(pass.RecomputeSlices, 4), total(pass.RecomputeSlices, 8)
	t.Log(uniform, two, four, eight)
	if !(uniform > two && two > four && four > eight) {
		t.Fatalf("a recipe needs %d, slices %d, %d and %d", uniform, two, four, eight)
	}
	s.Recompute = pass.RecomputeAuto
	for budget, parts := range map[int64]int{uniform: 0, two: 2, two - 1: 4, four - 1: 8} {
		r, err := planner(m, 40, host(budget)).Check(s)
		if err != nil {
			t.Fatal(err)
		}
		if r.Run.Settings.Slices != parts || !r.Fits {
			t.Errorf("%d bytes: %v, needs %d", budget, r.Run.Settings, r.Total)
		}
	}
	s.Recompute = pass.RecomputeFull
	_, err := planner(m, 40, host(eight)).Check(s)
	var no *plan.DoesNotFit
	if !errors.As(err, &no) || !strings.Contains(no.Details(), "training.gradient_checkpointing: slices, training.checkpoint_slices: 8") {
		t.Errorf("full in %d bytes: %v", eight, err)
	}
	s.Recompute, s.Slices = pass.RecomputeSlices, 3
	if _, err := planner(m, 40, host(0)).Plan(s); err == nil || !strings.Contains(err.Error(), "want one of [2 4 8]") {
		t.Errorf("8 rows in 3 slices: %v", err)
	}
}

// TestLadderShowsMoreSlices: the ladder of a plan with slices shows the largest number of them, even if other
// changes with it save nothing.
func TestLadderShowsMoreSlices(t *testing.T) {
	m := hf.NeoX{Vocab: 50, D: 16, Layers: 2, Heads: 2, FF: 512, MaxPositions: 64, RotaryPct: .5, RotaryBase: 10000,
		Parallel: true, Activation: "relu", Eps: 1e-5, InitStd: .02}
	s := plan.Settings{MicroBatch: 8, Accumulation: 1, Precision: device.FP32, CEChunk: 64, Recompute: pass.RecomputeSlices, Slices: 2}
	rungs, err := planner(m, 40, host(0)).Ladder(s)
	if err != nil {
		t.Fatal(err)
	}
	nothing := slices.ContainsFunc(rungs, func(r plan.Rung) bool { return r.Instead && r.Settings.Compress && r.Saves <= 0 })
	more := slices.ContainsFunc(rungs, func(r plan.Rung) bool { return r.Instead && r.Settings.Slices == 8 && r.Saves > 0 })
	if !nothing || !more {
		t.Errorf("8 bits save nothing: %v, 8 slices are shown: %v\n%s", nothing, more, plan.FormatLadder(rungs))
	}
}
