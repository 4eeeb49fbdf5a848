package engine_test

import (
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine"
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
			if temps := f.Placement.Bytes; temps > 2*4*128*64+4<<10 {
				t.Errorf("%s has %d bytes of temporaries, more than twice the largest weight", f.Name, temps)
			}
		}
		if outer != 3 {
			t.Errorf("%d functions, want 3", outer)
		}
	}
}
