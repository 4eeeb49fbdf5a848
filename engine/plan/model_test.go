package plan_test

import (
	"fmt"
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/nn/hf"
)

// production returns the guide's production model, with 1,414,455,296 parameters.
func production() hf.NeoX {
	return hf.NeoX{Vocab: 50257, D: 2048, Layers: 24, Heads: 16, FF: 8192, MaxPositions: 2048,
		RotaryPct: .25, RotaryBase: 10000, Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: .02}
}

// compiler returns a function that compiles m for sequences of length t.
func compiler(m hf.NeoX, t int, traits engine.Traits) func(plan.Settings) (*engine.Program, error) {
	return func(s plan.Settings) (*engine.Program, error) { return against(m, t, traits)(s, nil) }
}

// against returns the same for programs that compete.
func against(m hf.NeoX, t int, traits engine.Traits) func(plan.Settings, func(string) *pass.Rival) (*engine.Program, error) {
	return func(s plan.Settings, rival func(string) *pass.Rival) (*engine.Program, error) {
		tr := engine.Training{
			Accumulation: s.Accumulation,
			Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .1, MaxGradNorm: 1},
			Model: func(b *graph.Builder, mode engine.Mode) engine.Objective {
				n := s.MicroBatch * t
				h := m.Hidden(b, hf.Input{IDs: b.Input("ids", graph.T(graph.I32, s.MicroBatch, t)), Train: mode.Train})
				loss := b.LinearCrossEntropy(b.Reshape(h, n, m.D), m.Output(b),
					b.Input("labels", graph.T(graph.I32, n)), b.Input("weights", graph.T(graph.F32, n)), s.CEChunk)
				return engine.Objective{Sum: loss}
			},
		}
		tr.Optimizer.Clip = s.Clip
		tr.Optimizer.Offload = s.Offload.Has(plan.OffloadOptimizer)
		if s.NarrowGradients {
			tr.Optimizer.Gradients = graph.BF16
		}
		o := engine.CompileOptions{Traits: &traits, ComputeDType: graph.F32, Recompute: s.Recompute, Budget: s.Budget, Slices: s.Slices,
			OffloadActivations: s.Offload.Has(plan.OffloadActivations), Rival: rival}
		if traits.Name == engine.CUDA.Name {
			c, err := device.Lookup("T4")
			if err != nil {
				return nil, err
			}
			o.Price = plan.CardSpeed(c, s.Precision, backend.Lower(c)).Seconds
		}
		switch s.Precision {
		case device.BF16:
			o.ComputeDType = graph.BF16
		case device.FP16:
			o.ComputeDType = graph.F16
			tr.LossScaling = &engine.DefaultLossScaling
		}
		return engine.CompileTraining(tr, o)
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, layers := range []int{24, 48} {
		for _, p := range []device.Precision{device.FP32, device.BF16} {
			b.Run(fmt.Sprintf("%s/%d", p, layers), func(b *testing.B) {
				m := production()
				m.Layers = layers
				compile := compiler(m, 1024, engine.CPU)
				for b.Loop() {
					if _, err := compile(plan.Settings{MicroBatch: 4, Accumulation: 8, Precision: p, CEChunk: 1024}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
