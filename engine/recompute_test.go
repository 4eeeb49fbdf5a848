package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// pictures is a training step with convolution, pooling, batch norm, a mixture
// of experts and a scan, each in a block of its own.
func pictures() engine.Training {
	const batch, side, d = 3, 8, 12
	return engine.Training{
		Accumulation: 1,
		Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .1, MaxGradNorm: 1},
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			x := b.Input("weights", graph.T(graph.F32, batch, side, side, 3))
			in := 3
			for i := range 2 {
				b.Block(fmt.Sprint("conv", i), func() {
					x = b.Conv2D(graph.Conv(1, 1), x, b.Param("w", graph.KaimingNormal(9*in), d, in, 3, 3), nil)
					buffer := func(name string, init graph.Init) *graph.Value {
						return b.State(&graph.State{Name: b.Path(name), Type: graph.T(graph.F32, d), Role: graph.Buffer, Init: init})
					}
					x = b.BatchNorm(x, b.Param("gamma", graph.Ones(), d), b.Param("beta", graph.Zeros(), d),
						buffer("mean", graph.Zeros()), buffer("var", graph.Ones()), 0.1, 1e-5)
					x = b.MaxPool2D(b.LeakyRelu(x, 0.01), 2, 2, 0)
					in = d
				})
			}
			n := batch * side * side / 16
			rows := b.Reshape(x, n, d)
			b.Block("experts", func() {
				p := b.Softmax(b.Linear(rows, b.Param("router", graph.Normal(0.5), 4, d), nil))
				weights, choice := b.TopK(p, 2)
				r := b.Route(graph.Route{Experts: 4, Capacity: 10}, choice)
				h := b.GELU(b.GroupedLinear(b.Dispatch(rows, r), b.Param("up", graph.Normal(0.3), 4, 16, d), b.Param("bias", graph.Zeros(), 4, 16), r))
				rows = b.Add(rows, b.Combine(b.GroupedLinear(h, b.Param("down", graph.Normal(0.3), 4, d, 16), nil, r), weights, r))
			})
			b.Block("scan", func() {
				seq := b.Reshape(rows, batch, n/batch, d)
				seq = b.Conv1D(seq, b.Param("taps", graph.Normal(0.5), d, 1, 4), nil, 1, 1, 3, 0, d)
				dt := b.Apply(graph.FnSoftplus, b.Linear(seq, b.Param("dt", graph.Normal(0.3), d, d), nil))
				mix := func(name string) *graph.Value { return b.Linear(seq, b.Param(name, graph.Normal(0.3), 5, d), nil) }
				rows = b.SelectiveScan(seq, dt, b.Neg(b.Exp(b.Param("A", graph.Zeros(), d, 5))), mix("B"), mix("C"), b.Param("D", graph.Ones(), d))
			})
			return engine.Objective{Sum: b.Sum(b.Square(rows))}
		},
	}
}

func TestPicturesAllocateNothing(t *testing.T) {
	for _, low := range []graph.DType{graph.F32, graph.BF16} {
		p, err := engine.CompileTraining(pictures(), engine.CompileOptions{ComputeDType: low})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Load(backend.CPU(2))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Initialize(1); err != nil {
			t.Fatal(err)
		}
		if n := allocations(func() { run(t, r, engine.FuncStep) }); n != 0 {
			t.Errorf("%v: %v allocations an update", low, n)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Recomputing changes no bit of any state; running statistics change once per update.
func TestRecomputeChangesNothing(t *testing.T) {
	for _, low := range []graph.DType{graph.F32, graph.BF16} {
		want := map[string][]byte{}
		for _, r := range []pass.Recompute{pass.RecomputeNone, pass.RecomputeActivation, pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull} {
			p, err := engine.CompileTraining(pictures(), engine.CompileOptions{ComputeDType: low, Recompute: r, Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			run, err := p.Load(backend.CPU(2))
			if err != nil {
				t.Fatal(err)
			}
			if err := run.Initialize(1); err != nil {
				t.Fatal(err)
			}
			x, _ := run.Input(0, "weights")
			for i := range x.F32() {
				x.F32()[i] = float32(i*7919%101)/50 - 1
			}
			for name, v := range map[string]float32{engine.InputLR: 1e-2, engine.InputInvWeight: 0.1} {
				in, _ := run.Input(0, name)
				in.F32()[0] = v
			}
			for range 3 {
				if err := run.Run(engine.FuncStep, 0); err != nil {
					t.Fatal(err)
				}
			}
			clones := 0
			for _, n := range p.Func(engine.FuncStep).F.Nodes {
				if n.Clone {
					clones++
				}
			}
			if (clones > 0) != (r != pass.RecomputeNone) {
				t.Errorf("%v: %d nodes are recomputed", r, clones)
			}
			for _, s := range p.States {
				state, _ := run.State(s.Name)
				if r == pass.RecomputeNone {
					want[s.Name] = slices.Clone(state.Data)
					if s.Role == graph.Buffer && state.F32()[0] == float32(s.Init.A) {
						t.Errorf("%s did not move", s.Name)
					}
				} else if !slices.Equal(state.Data, want[s.Name]) {
					t.Errorf("%v, recompute %v: state %s differs", low, r, s.Name)
				}
			}
			if err := run.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
