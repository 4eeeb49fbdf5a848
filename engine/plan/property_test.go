package plan_test

import (
	"errors"
	"flag"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/nn/hf"
)

// check runs a property on fewer examples than rapid's default, because each compiles many programs;
// -rapid.checks requests more.
func check(t *testing.T, property func(t *rapid.T)) {
	t.Helper()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("40"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Value.Set(f.DefValue) }()
	}
	rapid.Check(t, property)
}

// randomModel returns a small model of any shape.
func randomModel(t *rapid.T) hf.NeoX {
	heads := rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "heads")
	d := heads * rapid.SampledFrom([]int{8, 16, 24}).Draw(t, "head")
	return hf.NeoX{Vocab: rapid.IntRange(3, 3000).Draw(t, "vocab"), D: d, Layers: rapid.IntRange(1, 4).Draw(t, "layers"),
		Heads: heads, FF: d * rapid.IntRange(1, 4).Draw(t, "ff"), MaxPositions: 64, RotaryPct: .5, RotaryBase: 10000,
		Parallel: rapid.Bool().Draw(t, "parallel"), Activation: "gelu", Eps: 1e-5, InitStd: .02}
}

func randomSettings(t *rapid.T) plan.Settings {
	return plan.Settings{
		MicroBatch: rapid.IntRange(1, 6).Draw(t, "batch"), Accumulation: rapid.IntRange(1, 3).Draw(t, "accumulation"),
		Precision: rapid.SampledFrom([]device.Precision{device.FP32, device.BF16, device.FP16}).Draw(t, "precision"),
		Recompute: pass.Recompute(rapid.IntRange(0, int(pass.RecomputeFull)).Draw(t, "recompute")),
		CEChunk:   rapid.SampledFrom([]int{0, 8, 1 << 12}).Draw(t, "chunk"),
	}
}

// host returns a CPU with a memory budget and known speed.
func host(budget int64) plan.Target {
	return plan.Target{Name: "CPU", Traits: engine.CPU, Memory: 1 << 40, Budget: budget,
		Rates: plan.Rates{F32: 4e11, BF16: 8e11, F16: 4e11, Attention: 1e11, AttentionBF16: 2e11, Vector: 2e10, Bandwidth: 4e10, Launch: 1000, Workers: 2}}
}

// TestReportAddsUp: for any model and settings, the parts add up to the whole.
func TestReportAddsUp(t *testing.T) {
	check(t, func(t *rapid.T) {
		m, s := randomModel(t), randomSettings(t)
		p, err := compiler(m, rapid.IntRange(1, 40).Draw(t, "time"), engine.CPU)(s)
		if err != nil {
			t.Fatal(err)
		}
		r := plan.New(p, host(0), plan.Run{Settings: s, Workspace: 4096})
		var arena, total int64
		for _, c := range r.Components {
			total += c.Bytes
			if c.Arena {
				arena += c.Bytes
			}
			if c.Bytes < 0 {
				t.Errorf("%s is %d bytes", c.Name, c.Bytes)
			}
		}
		if arena != p.Layout.Bytes || total != r.Total {
			t.Errorf("arena %d of %d, total %d of %d", arena, p.Layout.Bytes, total, r.Total)
		}
		var live int64
		f := p.Func(r.Function)
		for _, v := range f.Placement.AtPeak {
			live += (v.Type.Bytes() + 63) / 64 * 64
		}
		if live != f.Placement.Bound {
			t.Errorf("values of %d bytes live at the peak of %d", live, f.Placement.Bound)
		}
	})
}

// TestLadderDescends: the ladder only goes down, and recomputation does not make an update faster, except by
// what is saved if a value is recomputed inside the loop that reads it instead of being stored: 1.2 % in a model 96
// wide.
func TestLadderDescends(t *testing.T) {
	check(t, func(t *rapid.T) {
		m, s := randomModel(t), randomSettings(t)
		rungs, err := planner(m, rapid.IntRange(1, 40).Draw(t, "time"), host(1)).Ladder(s)
		if err != nil {
			t.Fatal(err)
		}
		last := rungs[0]
		for _, r := range rungs[1:] {
			if r.Instead {
				if r.Saves != rungs[0].Total-r.Total || r.Settings.MicroBatch != s.MicroBatch {
					t.Errorf("%s with a micro-batch of %d saves %d: %d instead of %d", r.Change, r.Settings.MicroBatch, r.Saves, r.Total, rungs[0].Total)
				}
				continue
			}
			if r.Settings.Effective() != s.Effective() {
				t.Errorf("%s changes the batch of an update from %d to %d", r.Change, s.Effective(), r.Settings.Effective())
			}
			if r.Settings.Recompute > last.Settings.Recompute && r.Update < 0.97*last.Update {
				t.Errorf("%s makes an update faster: %g s instead of %g s", r.Change, r.Update, last.Update)
			}
			if r.Saves != last.Total-r.Total || r.Taken != (r.Saves > 0) {
				t.Errorf("%s saves %d: %d instead of %d, taken %v", r.Change, r.Saves, r.Total, last.Total, r.Taken)
			}
			if r.Taken {
				last = r
			}
		}
	})
}

// TestFitIsBest: the choice of Fit fits, and neither its other candidates nor any plain setting that fits is
// faster.
func TestFitIsBest(t *testing.T) {
	check(t, func(t *rapid.T) {
		m := randomModel(t)
		length, batch := rapid.IntRange(2, 40).Draw(t, "time"), rapid.SampledFrom([]int{1, 2, 4, 6, 9}).Draw(t, "batch")
		free := planner(m, length, host(0))
		largest, err := free.Plan(plan.Settings{MicroBatch: batch, Accumulation: 1, Precision: device.FP32, CEChunk: 1 << 12})
		if err != nil {
			t.Fatal(err)
		}
		room := largest.Arena * rapid.Int64Range(20, 110).Draw(t, "percent") / 100
		p := planner(m, length, host(room+largest.Total-largest.Arena))
		precisions := []device.Precision{device.FP32}
		if rapid.Bool().Draw(t, "low") {
			precisions = append(precisions, device.BF16)
		}
		c, err := p.Fit(plan.Search{Effective: batch, Precisions: precisions})
		var no *plan.DoesNotFit
		if err != nil && !errors.As(err, &no) {
			t.Fatal(err)
		}
		var best *plan.Report
		if err == nil {
			best = c.Best
			if !best.Fits || best.Total > best.Capacity || best.Run.Settings.Effective() != batch {
				t.Fatalf("%v needs %d of %d for a batch of %d", best.Run.Settings, best.Total, best.Capacity, batch)
			}
			for i, k := range c.Candidates {
				if k.Fits && k.Time.Update < best.Time.Update {
					t.Errorf("%v takes %g s, the choice %v %g s", k.Settings, k.Time.Update, best.Run.Settings, best.Time.Update)
				}
				if (k.Why == "") != (i == 0) {
					t.Errorf("candidate %d, %v: %q", i, k.Settings, k.Why)
				}
			}
		}
		// Some plain settings that the search might have missed.
		var divisors []int
		for d := 1; d <= batch; d++ {
			if batch%d == 0 {
				divisors = append(divisors, d)
			}
		}
		for range 8 {
			precision := rapid.SampledFrom(precisions).Draw(t, "precision")
			d := rapid.SampledFrom(divisors).Draw(t, "micro-batch")
			chunk := p.Target.LossChunk(precision, p.Classes)
			s := plan.Settings{MicroBatch: d, Accumulation: batch / d, Precision: precision,
				CEChunk:   rapid.SampledFrom([]int{chunk, max(64, chunk/4)}).Draw(t, "chunk"),
				Recompute: pass.Recompute(rapid.IntRange(0, int(pass.RecomputeFull)).Draw(t, "recompute"))}
			rep, err := p.Plan(s)
			if err != nil {
				t.Fatal(err)
			}
			if rep.Fits && best == nil {
				t.Errorf("%v fits, but the search found nothing: %v", s, no)
			}
			if rep.Fits && best != nil && rep.Time.Update < best.Time.Update*(1-1e-9) {
				t.Errorf("%v fits in %g s, but the search found %v in %g s", s, rep.Time.Update, best.Run.Settings, best.Time.Update)
			}
		}
	})
}
