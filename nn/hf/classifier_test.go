package hf

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// The loss of every update of a fine-tuning with padded batches and class
// weights equals PyTorch's, whether a batch goes in whole or in two halves.
func TestClassifierCurve(t *testing.T) {
	classWeights := [...]float32{0.5, 1, 2}
	for _, name := range []string{"bert-classifier", "roberta-classifier"} {
		for _, parts := range []int{1, 2} {
			f := openFolder(t, name)
			golden := openFolderCurve(t, f.dir)
			batch := golden.batch / parts
			p, err := engine.CompileTraining(engine.Training{
				Accumulation: parts,
				Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .01, MaxGradNorm: 1},
				Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
					in := Input{IDs: b.Input("ids", graph.T(graph.I32, batch, golden.time)), Lens: b.Input("lens", graph.T(graph.I32, batch))}
					logits := f.Forward(b, in).Logits
					loss := b.CrossEntropy(logits, b.Input("labels", graph.T(graph.I32, batch)), b.Input("weights", graph.T(graph.F32, batch)))
					return engine.Objective{Sum: loss}
				},
			}, engine.CompileOptions{Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			r := armed(t, p)
			load(t, f.Config, f.dir, r, LoadOptions{})
			set := func(name string, v float32) {
				x, _ := r.Input(0, name)
				x.F32()[0] = v
			}
			worst := 0.0
			for u := range golden.loss {
				labels := golden.labels[u*golden.batch : (u+1)*golden.batch]
				total := float32(0)
				for _, l := range labels {
					total += classWeights[l]
				}
				set(engine.InputLR, 1e-3)
				set(engine.InputInvWeight, 1/total)
				loss := float32(0)
				for part := range parts {
					from := u*golden.batch + part*batch
					setI32(t, r, "ids", golden.ids[from*golden.time:(from+batch)*golden.time])
					setI32(t, r, "lens", golden.lens[from:from+batch])
					setI32(t, r, "labels", golden.labels[from:from+batch])
					w, _ := r.Input(0, "weights")
					for i := range batch {
						w.F32()[i] = classWeights[golden.labels[from+i]]
					}
					fn := engine.FuncStep
					if parts > 1 {
						fn = engine.FuncMicro
					}
					run(t, r, fn)
					loss += output(t, r, fn, engine.OutputLoss)[0]
				}
				last := engine.FuncStep
				if parts > 1 {
					last = engine.FuncUpdate
					run(t, r, last)
				}
				norm := output(t, r, last, engine.OutputGradNorm)[0]
				d := math.Abs(float64(loss - golden.loss[u]))
				worst = max(worst, d)
				if d > 1e-4 {
					t.Fatalf("%s in %d parts, update %d: loss %v, PyTorch has %v", name, parts, u, loss, golden.loss[u])
				}
				if math.Abs(float64(norm/golden.norm[u]-1)) > 1e-3 {
					t.Fatalf("%s in %d parts, update %d: gradient norm %v, PyTorch has %v", name, parts, u, norm, golden.norm[u])
				}
			}
			t.Logf("%s in %d parts: worst difference of the loss %.2g", name, parts, worst)
		}
	}
}

type classifierCurve struct {
	ids, lens, labels []int32
	loss, norm        []float32
	batch, time       int
}

func openFolderCurve(t *testing.T, dir string) classifierCurve {
	t.Helper()
	src, err := safetensors.Open(filepath.Join(dir, "curve.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}()
	ids, err := src.Tensor("ids")
	if err != nil {
		t.Fatal(err)
	}
	f := folder{expected: src}
	return classifierCurve{
		ids: f.given("ids"), lens: f.given("lens"), labels: f.given("labels"),
		loss: openF32(t, src, "loss"), norm: openF32(t, src, "gradient_norm"),
		batch: ids.Shape[1], time: ids.Shape[2],
	}
}
