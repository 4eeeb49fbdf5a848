package plan_test

import (
	"errors"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
)

// small returns a planner for a part of the production model on a T4 with a memory budget, which may move anything to
// main memory.
func small(t *testing.T, budget int64) *plan.Planner {
	target := onCard(t, "T4")
	target.Budget, target.HostMemory = budget, 12<<30
	m := production()
	m.Layers = 6
	p := planner(m, 1024, target)
	p.Offload, p.AutoOffload = plan.OffloadAll, true
	return p
}

// TestLosersAreGivenUp: plans that lose are not compiled to their end, and the choice is what it is without that.
func TestLosersAreGivenUp(t *testing.T) {
	for _, budget := range []int64{8 << 30, 10 << 30} {
		s := plan.Settings{MicroBatch: 16, Accumulation: 2, Precision: device.FP16, CEChunk: 1024, Recompute: pass.RecomputeAuto}
		alone := small(t, budget)
		compile := alone.Compile
		alone.Compile = func(s plan.Settings, _ func(string) *pass.Rival) (*engine.Program, error) { return compile(s, nil) }
		want, err := alone.Plan(s)
		if err != nil {
			t.Fatal(err)
		}
		p := small(t, budget)
		gaveUp := 0
		p.Compile = func(s plan.Settings, rival func(string) *pass.Rival) (*engine.Program, error) {
			program, err := compile(s, rival)
			if errors.Is(err, pass.ErrSlower) {
				gaveUp++
			}
			return program, err
		}
		got, err := p.Plan(s)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d compiled, %d given up; %d without giving up: %v", p.Compiled, gaveUp, alone.Compiled, got.Run.Settings)
		if got.Run.Settings != want.Run.Settings || got.Total != want.Total || got.Time.Update != want.Time.Update || !got.Fits {
			t.Errorf("chose %v in %g s, want %v in %g s", got.Run.Settings, got.Time.Update, want.Run.Settings, want.Time.Update)
		}
		if gaveUp == 0 || p.Compiled >= alone.Compiled {
			t.Errorf("%d programs compiled and %d given up, %d compiled without that", p.Compiled, gaveUp, alone.Compiled)
		}
	}
}

// TestFitIsNoSlowerThanAnyMicroBatch: the search does not end at a micro-batch that loses, as smaller ones may win:
// here the largest needs no sums of gradients, the next one down has too little room for what is kept besides them.
func TestFitIsNoSlowerThanAnyMicroBatch(t *testing.T) {
	const budget, effective = 17 << 29, 32
	with := func() *plan.Planner {
		p := small(t, budget)
		p.Offload = plan.OffloadActivations
		return p
	}
	p := with()
	c, err := p.Fit(plan.Search{Effective: effective, Precisions: []device.Precision{device.FP16}, CEChunk: 1024, Offload: plan.OffloadActivations})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d compiled: %v in %g s", p.Compiled, c.Best.Run.Settings, c.Best.Time.Update)
	for n := 1; n <= effective; n *= 2 {
		r, err := with().Plan(plan.Settings{MicroBatch: n, Accumulation: effective / n, Precision: device.FP16, CEChunk: 1024, Recompute: pass.RecomputeAuto, Offload: plan.OffloadActivations})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v: %g s, fits %v", r.Run.Settings, r.Time.Update, r.Fits)
		if r.Fits && r.Time.Update < c.Best.Time.Update {
			t.Errorf("chose %v in %g s, %v takes %g s", c.Best.Run.Settings, c.Best.Time.Update, r.Run.Settings, r.Time.Update)
		}
	}
}

// TestFitIsNoSlowerThanAnyChoice: whatever may be kept in main memory, the order in which the search goes through that
// loses nothing, and settings that were given up are not compiled again.
func TestFitIsNoSlowerThanAnyChoice(t *testing.T) {
	const effective = 16
	for _, budget := range []int64{7 << 30, 9 << 30, 14 << 30} {
		p := small(t, budget)
		compile, compiled := p.Compile, map[plan.Settings]int{}
		p.Compile = func(s plan.Settings, rival func(string) *pass.Rival) (*engine.Program, error) {
			if compiled[s]++; compiled[s] > 1 {
				t.Errorf("%v was compiled again", s)
			}
			return compile(s, rival)
		}
		c, err := p.Fit(plan.Search{Effective: effective, Precisions: []device.Precision{device.FP16, device.FP32}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d compiled, %d given up: %v in %g s", p.Compiled, len(c.GivenUp), c.Best.Run.Settings, c.Best.Time.Update)
		for n := 1; n <= effective; n *= 2 {
			for _, o := range []plan.Offload{plan.OffloadNothing, plan.OffloadOptimizer, plan.OffloadActivations, plan.OffloadAll} {
				q := small(t, budget)
				q.AutoOffload = false
				r, err := q.Plan(plan.Settings{MicroBatch: n, Accumulation: effective / n, Precision: device.FP16, CEChunk: c.Best.Run.Settings.CEChunk, Recompute: pass.RecomputeAuto, Offload: o})
				if err != nil {
					t.Fatal(err)
				}
				if r.Fits && r.Time.Update < c.Best.Time.Update {
					t.Errorf("%v takes %g s, and fit chose %v in %g s", r.Run.Settings, r.Time.Update, c.Best.Run.Settings, c.Best.Time.Update)
				}
			}
		}
	}
}
