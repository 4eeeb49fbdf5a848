package hf

import (
	"math"
	"slices"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Every architecture trains with dropout, padding or segments, in mixed
// precision and with recomputation: the first changes no more than its
// rounding, the second no bit.
func TestTrainingModes(t *testing.T) {
	for _, name := range []string{"gpt2", "neox", "bert-classifier", "roberta-masked"} {
		t.Run(name, func(t *testing.T) {
			plain := trainWith(t, name, engine.CompileOptions{})
			for _, mode := range []pass.Recompute{pass.RecomputeSelective, pass.RecomputeFull} {
				if got := trainWith(t, name, engine.CompileOptions{Recompute: mode}); !slices.Equal(got, plain) {
					t.Errorf("%v: losses %v, without recomputation %v", mode, got, plain)
				}
			}
			low := trainWith(t, name, engine.CompileOptions{ComputeDType: graph.BF16})
			for i := range plain {
				if math.Abs(float64(low[i]/plain[i]-1)) > 0.03 {
					t.Errorf("bf16: losses %v, in float32 %v", low, plain)
				}
			}
			if plain[len(plain)-1] >= plain[0] {
				t.Errorf("nothing is learned: %v", plain)
			}
		})
	}
}

// trainWith fits one batch and returns the losses.
func trainWith(t *testing.T, name string, o engine.CompileOptions) []float32 {
	t.Helper()
	const batch, time = 4, 12
	f := openFolder(t, name)
	p, err := engine.CompileTraining(engine.Training{
		Optimizer: engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, MaxGradNorm: 1},
		Model: func(b *graph.Builder, mode engine.Mode) engine.Objective {
			in := Input{IDs: b.Input("ids", graph.T(graph.I32, batch, time)), Train: mode.Train}
			if f.Head == HeadCausal {
				in.Segments = b.Input("segments", graph.T(graph.I32, batch, time))
			} else {
				in.Lens = b.Input("lens", graph.T(graph.I32, batch))
			}
			logits := f.Forward(b, in).Logits
			n := logits.Shape()[0]
			return engine.Objective{Sum: b.CrossEntropy(logits, b.Input("labels", graph.T(graph.I32, n)), b.Input("weights", graph.T(graph.F32, n)))}
		},
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	r := armed(t, p)
	load(t, f.Config, f.dir, r, LoadOptions{})
	fill := func(name string, value func(i int) int32) {
		if x, ok := r.Input(0, name); ok {
			for i := range x.I32() {
				x.I32()[i] = value(i)
			}
		}
	}
	fill("ids", func(i int) int32 { return int32(3 + i*i%140) })
	fill("segments", func(i int) int32 { return int32(i % time / 5) })
	fill("lens", func(i int) int32 { return int32(time - i) })
	fill("labels", func(i int) int32 { return int32(i % 3) })
	weights, _ := r.Input(0, "weights")
	for i := range weights.F32() {
		weights.F32()[i] = 1
	}
	set := func(name string, v float32) {
		x, _ := r.Input(0, name)
		x.F32()[0] = v
	}
	var losses []float32
	for u := range 8 {
		set(engine.InputLR, 2e-3)
		set(engine.InputInvWeight, 1/float32(len(weights.F32())))
		fill(graph.RunCounter, func(i int) int32 { return int32(u * (1 - i)) })
		run(t, r, engine.FuncStep)
		losses = append(losses, output(t, r, engine.FuncStep, engine.OutputLoss)[0])
	}
	return losses
}
