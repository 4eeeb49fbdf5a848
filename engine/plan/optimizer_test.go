package plan_test

import (
	"math"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
)

// TestOptimizerLaunches: a card updates all parameters in one launch and computes the norm of all gradients
// in two (engine/cuda/optimizer.go). A processor handles each parameter separately, and Adafactor takes
// several launches for each.
func TestOptimizerLaunches(t *testing.T) {
	card := onCard(t, "T4").Speed(device.FP32)
	for _, c := range []struct {
		rule  engine.Rule
		speed plan.Speed
		want  map[string]float64 // launches
	}{
		{engine.AdamW, card, map[string]float64{"adamw": 1, "global_norm": 2}},
		{engine.AdamW, plan.Speed{Launch: 1e-6}, map[string]float64{"adamw": 3, "global_norm": 1}},
		{engine.Adafactor, card, map[string]float64{"adafactor": 18, "global_norm": 2}},
	} {
		for _, row := range plan.Ops(threeMatrices(t, c.rule), c.speed, 1, false) {
			if want, ok := c.want[row.Op]; ok {
				if got := row.Launch / c.speed.Launch; math.Abs(got-want) > 1e-9 {
					t.Errorf("%s is priced at %g launches, want %g", row.Op, got, want)
				}
				delete(c.want, row.Op)
			}
		}
		if len(c.want) > 0 {
			t.Errorf("not priced: %v", c.want)
		}
	}
}

func threeMatrices(t *testing.T, rule engine.Rule) *engine.Program {
	p, err := engine.CompileTraining(engine.Training{
		Optimizer: engine.Optimizer{Rule: rule, Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .1, MaxGradNorm: 1},
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			x := b.Input("x", graph.T(graph.F32, 4, 16))
			for _, name := range []string{"a", "b", "c"} {
				x = b.Linear(x, b.Param(name, graph.Init{}, 16, 16), nil)
			}
			return engine.Objective{Sum: b.Sum(b.Mul(x, x), 0, 1)}
		},
	}, engine.CompileOptions{Traits: &engine.CUDA})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
