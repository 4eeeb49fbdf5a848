package agiformer

import (
	"slices"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/system"
)

// BenchmarkOneOfFour alternates between updates of a model that sends each token to one of four experts, and
// of the same model with a single expert. The ratio of the medians should be 1.4 or less.
func BenchmarkOneOfFour(b *testing.B) {
	const batch, length = 16, 128
	arm := func(experts int) *engine.Executable {
		n := Net{
			Vocab: byteVocabulary, D: 256, Layers: 2, Heads: 4, FF: 1024, MaxPositions: length, Kernel: 3, Rotary: true, RotaryBase: 10000,
			Experts: Experts{Kinds: sorted([]string{string(Standard)}, experts), Choices: 1}, Eps: 1e-5, // drops nothing
		}
		p, err := engine.CompileTraining(engine.Training{
			Accumulation: 1, Optimizer: engine.Optimizer{Beta1: .9, Beta2: .99, Eps: 1e-8, MaxGradNorm: 1},
			Model: func(b *graph.Builder, m engine.Mode) engine.Objective {
				return n.objective(b, system.Shape{MicroBatch: batch, Accumulation: 1}, length, 0.01, 0.1, m.Train, false)
			},
		}, engine.CompileOptions{})
		if err != nil {
			b.Fatal(err)
		}
		r, err := p.Load(backend.CPU(0))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = r.Close() })
		if err := r.Initialize(1); err != nil {
			b.Fatal(err)
		}
		feed(r, text(batch*(length+1), n.Vocab), batch, length)
		return r
	}
	runners := []*engine.Executable{arm(1), arm(4)}
	took := make([][]time.Duration, 2)
	for i := 0; b.Loop(); i++ {
		for k, r := range runners {
			began := time.Now()
			if err := r.Run(engine.FuncStep, 0); err != nil {
				b.Fatal(err)
			}
			if i > 0 { // the first update touches new memory
				took[k] = append(took[k], time.Since(began))
			}
		}
	}
	if len(took[0]) == 0 {
		return
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return d[len(d)/2].Seconds()
	}
	dense, sparse := median(took[0]), median(took[1])
	b.ReportMetric(1e3*dense, "ms/dense")
	b.ReportMetric(1e3*sparse, "ms/one-of-four")
	b.ReportMetric(sparse/dense, "ratio")
}
