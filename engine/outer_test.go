package engine_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
)

// outerModel is two trained matrices, one that no gradient reaches, and a bias.
func outerModel(b *graph.Builder, _ engine.Mode) engine.Objective {
	x := b.Input("x", graph.T(graph.F32, 4, 64))
	b.Param("unused", graph.Normal(1), 3, 3)
	h := b.Tanh(b.Linear(x, b.Param("w1", graph.Normal(1), 128, 64), b.Param("b1", graph.Zeros(), 128)))
	return engine.Objective{Sum: b.Sum(b.Square(b.Linear(h, b.Param("w2", graph.Normal(1), 8, 128), nil)), 0, 1)}
}

// The outer optimizer costs two more copies of the trained weights, if it has a momentum, and computes in float32 in any
// precision.
func TestOuterOptimizerInTheArena(t *testing.T) {
	compile := func(o *engine.Outer) *engine.Program {
		p, err := engine.CompileTraining(engine.Training{
			Model: outerModel, Accumulation: 4, Outer: o, Optimizer: engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8},
		}, engine.CompileOptions{Verify: true, ComputeDType: graph.BF16})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	states := func(p *engine.Program) int64 { return p.Layout.States.Bytes }
	const trained = 4 * (128*64 + 128 + 8*128)
	without := compile(nil)
	for momentum, copies := range map[float64]int64{0: 1, 0.9: 2} {
		p := compile(&engine.Outer{World: 2, InnerSteps: 5, LearningRate: 0.7, Momentum: momentum})
		if got := states(p) - states(without); got != copies*trained {
			t.Errorf("with a momentum of %v states take %d more bytes, want %d", momentum, got, copies*trained)
		}
		outer := 0
		for _, f := range p.Funcs {
			if !strings.HasPrefix(f.Name, "outer_") {
				continue
			}
			outer++
			for _, n := range f.F.Nodes {
				for _, v := range n.Out {
					if v.DType() != graph.F32 {
						t.Errorf("%s: %s is %v", f.Name, v.Label(), v.DType())
					}
				}
			}
			if temps := f.Placement.Bytes; temps > 3*4*128*64+4<<10 {
				t.Errorf("%s has %d bytes of temporaries, more than three times the largest weight", f.Name, temps)
			}
		}
		if outer != 3 {
			t.Errorf("%d functions, want 3", outer)
		}
	}
}

// The outer step is that of the formula, computed here in float64, for weights large and small, and leaves the gradients
// zero. Its temporaries do not grow with the weights.
func TestOuterStep(t *testing.T) {
	const world, rate, momentum, large = 3, 0.7, 0.9, 4<<20 + 5
	compile := func(n int) *engine.Program {
		p, err := engine.CompileTraining(engine.Training{
			Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
				w, v := b.Param("w", graph.Zeros(), n), b.Param("v", graph.Zeros(), 3)
				return engine.Objective{Sum: b.Add(b.Sum(b.Square(w), 0), b.Sum(b.Square(v), 0))}
			},
			Accumulation: world, Outer: &engine.Outer{World: world, InnerSteps: 5, LearningRate: rate, Momentum: momentum},
			Optimizer: engine.Optimizer{Rule: engine.Lion, Beta1: 0.9, Beta2: 0.99},
		}, engine.CompileOptions{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if a, b := compile(8<<20).Func(engine.FuncOuterUpdate), compile(80<<20).Func(engine.FuncOuterUpdate); a.Placement.Bytes+4<<10 < b.Placement.Bytes {
		t.Errorf("temporaries take %d bytes, with ten times the weights %d", a.Placement.Bytes, b.Placement.Bytes)
	}
	p := compile(large)
	x, err := p.Load(backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := x.Initialize(1); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.Float64()-0.5) * float32(scale)
		}
		return x
	}
	run := func(fn string) {
		if err := x.Run(fn, 0); err != nil {
			t.Fatal(err)
		}
	}
	set := func(name string, elems []float32) {
		if err := x.SetFloats(name, elems); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []float32 {
		s, err := x.State(name)
		if err != nil {
			t.Fatal(err)
		}
		return s.F32()
	}
	for name, n := range map[string]int{"w": large, "v": 3} {
		set(name, random(n, 2))
	}
	run(engine.FuncOuterBegin)
	m := map[string][]float64{"w": make([]float64, large), "v": make([]float64, 3)}
	for round := range 2 {
		sums, before, square := map[string][]float32{}, map[string][]float32{}, 0.0
		for name := range m {
			before[name] = read(name)
			own := random(len(m[name]), 2)
			set(name, own)
			run(engine.FuncOuterGradient)
			for i, g := range read("gradient." + name) {
				if want := before[name][i] - own[i]; g != want {
					t.Fatalf("round %d: what %s[%d] changed by is %v, want %v", round, name, i, g, want)
				}
			}
			sums[name] = random(len(m[name]), 1)
		}
		for name, sum := range sums { // as ranks would have added them up
			set("gradient."+name, sum)
		}
		run(engine.FuncOuterUpdate)
		for name, sum := range sums {
			weights, synchronized, left := read(name), read(engine.Synchronized+name), read("gradient."+name)
			for i := range sum {
				mean := float64(sum[i]) / world
				square += mean * mean
				m[name][i] = momentum*m[name][i] + mean
				want := float64(before[name][i]) - rate*(mean+momentum*m[name][i])
				if math.Abs(float64(weights[i])-want) > 1e-6 || synchronized[i] != weights[i] || left[i] != 0 {
					t.Fatalf("round %d: %s[%d] is %v, synchronized %v, want %v; the gradient is %v", round, name, i, weights[i], synchronized[i], want, left[i])
				}
			}
		}
		norm, err := x.OutputF32(engine.FuncOuterUpdate, engine.OutputOuterNorm)
		if err != nil {
			t.Fatal(err)
		}
		if want := math.Sqrt(square); math.Abs(float64(norm[0])/want-1) > 1e-5 {
			t.Errorf("round %d: the norm is %v, want %v", round, norm[0], want)
		}
	}
}
