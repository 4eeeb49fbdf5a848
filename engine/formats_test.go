package engine_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// rules and roundings that can be combined.
var (
	narrowRules = []engine.Rule{engine.AdamW, engine.AdamW8bit, engine.Lion, engine.Adafactor, engine.Muon}
	modes       = []graph.RoundingMode{graph.Exact, graph.Stochastic, graph.Compensated}
)

func formatted(rule engine.Rule, mode graph.RoundingMode, accumulation int) engine.Training {
	tr := small(accumulation)
	tr.Optimizer.Rule, tr.Optimizer.Round = rule, graph.Rounding{Mode: mode, Seed: 3}
	return tr
}

// The program's states have the sizes that docs/memory.md gives for each weight.
func TestBytesOfFormats(t *testing.T) {
	for _, rule := range narrowRules {
		for i := range 2 * len(modes) {
			mode, tr := modes[i/2], formatted(rule, modes[i/2], 2)
			if i%2 > 0 {
				tr.Optimizer.Gradients = graph.BF16
			}
			p, err := engine.CompileTraining(tr, engine.CompileOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got, want int64
			for _, s := range p.States {
				n := s.Type.Shape.Elems()
				switch s.Role {
				case graph.Weight:
					size := int64(4)
					if mode != graph.Exact && len(s.Type.Shape) > 1 {
						size = 2
						if mode == graph.Compensated {
							want += 2 * n
						}
					}
					want += (size + 4) * n // and its gradient's sum
					if i%2 > 0 && len(s.Type.Shape) > 1 {
						want -= 2 * n
					}
					switch {
					case rule == engine.Lion, rule == engine.Muon && len(s.Type.Shape) > 1 && s.Part == graph.Hidden:
						want += 4 * n
					case rule == engine.Adafactor && len(s.Type.Shape) > 1:
						rows, cols := graph.FactorTypes(s.Type)
						want += rows.Bytes() + cols.Bytes()
					case rule == engine.Adafactor:
						want += 4 * n
					case rule == engine.AdamW8bit && n >= engine.Least8bit:
						want += 2*n + 8*((n+graph.MomentBlock-1)/graph.MomentBlock)
					default:
						want += 8 * n
					}
					got += s.Type.Bytes()
				case graph.Moment, graph.Gradient:
					got += s.Type.Bytes()
				}
			}
			if got != want {
				t.Errorf("%s, rounding %d, %v: weights, moments and gradients take %d bytes, want %d", rule, mode, tr.Optimizer.Gradients, got, want)
			}
		}
	}
}

// In mixed precision nothing holds a copy of a weight that is stored in 16 bits, in any
// function, and none is float32 in full precision either.
func TestNarrowWeightsAreReadInPlace(t *testing.T) {
	for _, low := range []graph.DType{graph.F32, graph.BF16} {
		p, err := engine.CompileTraining(formatted(engine.AdamW, graph.Stochastic, 1), engine.CompileOptions{ComputeDType: low, Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Funcs {
			for _, n := range f.F.Nodes {
				if _, step := n.Op.(graph.Optimizer); step {
					continue
				}
				for _, v := range n.In {
					s := graph.Storage(v).State
					if s == nil || s.Type.DType != graph.BF16 {
						continue
					}
					if _, copies := n.Op.(graph.Elementwise); copies || len(n.In) == 1 {
						t.Errorf("%v: %s of %s makes a copy of %s", low, n.Op.Name(), f.Name, s.Name)
					}
				}
			}
		}
	}
}

func trained(t *testing.T, tr engine.Training, low graph.DType, workers, updates int) *engine.Executable {
	r := load(t, tr, low, workers)
	train(t, r, updates)
	return r
}

func train(t *testing.T, r *engine.Executable, updates int) {
	t.Helper()
	fns := []string{engine.FuncStep}
	if r.Program().Func(engine.FuncUpdate) != nil {
		fns = []string{engine.FuncMicro, engine.FuncMicro, engine.FuncUpdate}
	}
	for range updates {
		run(t, r, fns...)
	}
}

// The steps of a weight and of its parts draw the same random bits, and those of other weights
// others.
func TestRandomBitsOfParts(t *testing.T) {
	o := engine.Optimizer{Rule: engine.AdamW8bit, Beta1: .9, Beta2: .999, Eps: 1e-8, Round: graph.Rounding{Seed: 5}}
	steps := func(sharding *engine.Sharding) (all []graph.Rounding) {
		tr := small(2)
		tr.Optimizer, tr.Sharding = o, sharding
		tr.Model = func(b *graph.Builder, _ engine.Mode) engine.Objective {
			x := b.Input("x", graph.T(graph.F32, 3, 2))
			for _, name := range []string{"one", "two"} {
				x = b.MatMul(x, b.Param(name, graph.Init{}, 2, 100_000), false, false)
				x = b.Slice(x, 1, 0, 2)
			}
			return engine.Objective{Sum: b.Sum(x)}
		}
		p, err := engine.CompileTraining(tr, engine.CompileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range p.Funcs {
			for _, n := range f.F.Nodes {
				if op, ok := n.Op.(graph.AdamW8bit); ok {
					all = append(all, op.Round)
				}
			}
		}
		return all
	}
	whole := steps(nil)
	if len(whole) != 2 || whole[0].Stream == whole[1].Stream || whole[0].Seed != 5 {
		t.Fatalf("steps draw by %v", whole)
	}
	later := false
	for rank := range 3 {
		for _, r := range steps(&engine.Sharding{Rank: rank, World: 3}) {
			if r.Seed != 5 || r.Stream != whole[0].Stream && r.Stream != whole[1].Stream {
				t.Errorf("a part draws by %v", r)
			}
			later = later || r.First > 0
		}
	}
	if !later {
		t.Error("no part begins within a weight")
	}
}

// Updates of weights in 16 bits allocate nothing and do not depend on the workers; random
// bits depend on the seed.
func TestRoundedUpdates(t *testing.T) {
	for _, rule := range narrowRules {
		for _, mode := range modes[1:] {
			tr := formatted(rule, mode, 2)
			one, many := trained(t, tr, graph.BF16, 1, 3), trained(t, tr, graph.BF16, 3, 3)
			tr.Optimizer.Round.Seed++
			other, differ := trained(t, tr, graph.BF16, 3, 3), false
			for _, s := range one.Program().States {
				a, _ := one.State(s.Name)
				b, _ := many.State(s.Name)
				c, _ := other.State(s.Name)
				if !bytes.Equal(a.Data, b.Data) {
					t.Errorf("%s, rounding %d: state %s differs with 3 workers", rule, mode, s.Name)
				}
				differ = differ || !bytes.Equal(a.Data, c.Data)
			}
			if differ != (mode == graph.Stochastic) {
				t.Errorf("%s, rounding %d: another seed gives other states: %v", rule, mode, differ)
			}
			if got, want := many.ArenaUsed(), many.Program().Layout.Bytes; got != want {
				t.Errorf("%s, rounding %d: %d bytes of the arena are used, the plan has %d", rule, mode, got, want)
			}
			if n := allocations(func() { run(t, many, engine.FuncMicro, engine.FuncMicro, engine.FuncUpdate) }); n != 0 {
				t.Errorf("%s, rounding %d: %v allocations an update", rule, mode, n)
			}
		}
	}
}

// Steps far below the resolution of 16 bits are not lost: after many updates weights are
// where float32 would have them, on average (stochastic) or each (compensated).
func TestSmallStepsCount(t *testing.T) {
	const updates, rate = 64, 1e-5 // weights are about 0.05, their spacing about 2e-4
	final := func(mode graph.RoundingMode) (moved []float64) {
		tr := formatted(engine.AdamW, mode, 1)
		tr.Optimizer.WeightDecay = 0
		r := load(t, tr, graph.F32, 2)
		for slot := range engine.Slots {
			x, _ := r.Input(slot, engine.InputLR)
			x.F32()[0] = rate
		}
		const name = "gpt_neox.embed_in.weight"
		before, err := r.State(name)
		if err != nil {
			t.Fatal(err)
		}
		for range updates {
			run(t, r, engine.FuncStep)
		}
		after, _ := r.State(name)
		rest := make([]float64, len(before.Float64s()))
		if mode == graph.Compensated {
			x, _ := r.State(engine.Remainder + name)
			rest = x.Float64s()
		}
		for i, b := range before.Float64s() {
			moved = append(moved, after.Float64s()[i]+rest[i]-b)
		}
		return moved
	}
	size := func(x []float64) (s float64) {
		for _, v := range x {
			s += math.Abs(v) / float64(len(x))
		}
		return s
	}
	exact := final(graph.Exact)
	for _, mode := range modes[1:] {
		got := final(mode)
		dot, square := 0.0, 0.0
		for i, x := range exact {
			dot, square = dot+x*got[i], square+x*x
		}
		// The slope of the movement over that of float32: 1 if nothing is lost.
		if slope := dot / square; math.Abs(slope-1) > 0.2 {
			t.Errorf("rounding %d: weights move %.3g times as far as in float32 (%.3g of %.3g)", mode, slope, size(got), size(exact))
		}
	}
}
