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

// TestGradientsAreARung: 16-bit gradients are a rung of the ladder that says to the byte what it saves. A
// refusal names them only if no change that keeps the bits is enough, or in addition to one that is.
func TestGradientsAreARung(t *testing.T) {
	m := hf.NeoX{Vocab: 4000, D: 256, Layers: 2, Heads: 4, FF: 1024, MaxPositions: 64, RotaryPct: .25, RotaryBase: 10000, Activation: "gelu", Eps: 1e-5, InitStd: .02}
	target := onCard(t, "T4")
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
	// With as much memory as the least without rounding, it is not named as the smallest change.
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

// TestClippingIsARung: clipping without waiting gradients is also a rung, if an update has a single
// micro-batch, so that gradients wait. In two passes, it takes longer and is named before anything that
// changes updates; with the norm of the previous update, it is offered unless a loss scale must detect
// overflows first.
func TestClippingIsARung(t *testing.T) {
	m := hf.NeoX{Vocab: 4000, D: 256, Layers: 4, Heads: 4, FF: 1024, MaxPositions: 64, RotaryPct: .25, RotaryBase: 10000, Activation: "relu", Eps: 1e-5, InitStd: .02}
	target := onCard(t, "T4")
	for _, c := range []struct {
		precision           device.Precision
		micro, rows         int
		clips, two, another bool
	}{
		{device.FP32, 1, 1, true, true, true},
		{device.FP16, 1, 1, true, true, false},
		{device.FP16, 1, 1, false, true, false},
		{device.FP32, 1, 1, false, false, false},
		{device.FP32, 4, 1, true, false, false},
	} {
		s := plan.Settings{MicroBatch: c.rows, Accumulation: c.micro, Precision: c.precision}
		p := planner(m, 32, target)
		p.Clips = c.clips
		rungs, err := p.Ladder(s)
		if err != nil {
			t.Fatal(err)
		}
		rung := func(by engine.ClipNorm) *plan.Rung {
			to := s
			to.Clip = by
			for i, r := range rungs {
				if r.Settings == to {
					all := rungs[i]
					all.Saves, all.Cost = rungs[0].Total-r.Total, r.Update/rungs[0].Update-1
					return &all
				}
			}
			return nil
		}
		two, previous := rung(engine.ClipTwoPasses), rung(engine.ClipPrevious)
		if (two != nil) != c.two || (previous != nil) != c.another {
			t.Errorf("%+v: the ladder has two passes: %v, the norm before: %v\n%s", c, two != nil, previous != nil, plan.FormatLadder(rungs))
			continue
		}
		if two != nil && (two.Change != "training.clip_norm: two_passes" || two.Cost < .2 || two.Saves < 4<<20) {
			t.Errorf("%+v: two passes save %d bytes for %.2f of the time", c, two.Saves, two.Cost)
		}
		if previous != nil && (previous.Saves < two.Saves-1024 || previous.Cost > two.Cost) {
			t.Errorf("%+v: the norm before saves %d bytes for %.2f of the time", c, previous.Saves, previous.Cost)
		}
		if !c.two || !c.another {
			continue
		}
		// A refusal names two passes before changes that alter updates.
		least := int64(graph.MostBytes)
		for _, r := range rungs {
			if r.Settings.Clip != engine.ClipPrevious && !r.Settings.NarrowGradients {
				least = min(least, r.Total)
			}
		}
		small := target
		small.Budget = least
		p = planner(m, 32, small)
		_, err = p.Check(s)
		var no *plan.DoesNotFit
		if !errors.As(err, &no) || no.Smallest == nil || !strings.Contains(no.Smallest.Change, "training.clip_norm: two_passes") || strings.Contains(no.Smallest.Change, "previous") {
			t.Errorf("with %d bytes: %v", least, err)
		}
	}
}
