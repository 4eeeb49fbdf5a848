package moderation

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/rundir"
)

// golden opens a file written by tools/goldens/moderation.py.
func golden(t *testing.T, name string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(filepath.Join("testdata", "curve", name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func floats(t *testing.T, f *safetensors.File, name string) []float32 {
	t.Helper()
	x, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return engine.Tensor{Data: append([]byte(nil), x.Data...)}.F32()
}

func ints(t *testing.T, f *safetensors.File, name string) []int32 {
	t.Helper()
	x, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return engine.Tensor{Data: append([]byte(nil), x.Data...)}.I32()
}

// TestCurve: the logits of a model folder and the losses of thirty updates from it, in two buckets with class
// weights and accumulation, match those of transformers.
func TestCurve(t *testing.T) {
	const updates, rows = 30, 4
	lengths := [...]int{16, 8}
	weights := [labels]float32{0.6, 2.9}
	batches := golden(t, "batches.safetensors")
	for _, name := range []string{"bert", "roberta"} {
		for _, recompute := range []pass.Recompute{pass.RecomputeNone, pass.RecomputeFull} {
			t.Run(name+"/"+recompute.String(), func(t *testing.T) {
				folder := filepath.Join("testdata", "curve", name)
				c := settings(t, "model.folder", folder, "model.dropout", "0", "model.attention_dropout", "0", "model.classifier_dropout", "0",
					"data.seq_len", "16", "data.buckets", "8,16", "training.batch_size", "4", "training.gradient_accumulation_steps", "2",
					"training.weight_decay", "0.1", "training.beta2", "0.999", "training.max_grad_norm", "1")
				m, err := describe(c)
				if err != nil {
					t.Fatal(err)
				}
				p, err := engine.CompileTraining(m.Training(m.Shape), engine.CompileOptions{Verify: true, Recompute: recompute})
				if err != nil {
					t.Fatal(err)
				}
				r, err := p.Load(backend.CPU(2))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = r.Close() }()
				if err := r.Initialize(1); err != nil {
					t.Fatal(err)
				}
				if err := (&task{config: c, env: envOf(t)}).load(r); err != nil {
					t.Fatal(err)
				}
				trace := golden(t, filepath.Join(name, "trace.safetensors"))
				want, norms, rates := floats(t, trace, "loss"), floats(t, trace, "gradient_norm"), floats(t, trace, "lr")
				in := train.Inputs{Runner: r}
				for u := range updates {
					total := float32(0)
					for m := range lengths {
						for _, l := range ints(t, batches, "labels"+string(rune('0'+m)))[u*rows : (u+1)*rows] {
							total += weights[l]
						}
					}
					loss := float32(0)
					for m, length := range lengths {
						number := string(rune('0' + m))
						v := variant(length)
						labels := ints(t, batches, "labels"+number)[u*rows : (u+1)*rows]
						w := make([]float32, rows)
						for i, l := range labels {
							w[i] = weights[l]
						}
						for input, values := range map[string][]int32{
							inputIDs:    ints(t, batches, "ids"+number)[u*rows*length : (u+1)*rows*length],
							inputLens:   ints(t, batches, "lens"+number)[u*rows : (u+1)*rows],
							inputLabels: labels,
						} {
							if err := put(in.I32, at(input, v), values); err != nil {
								t.Fatal(err)
							}
						}
						for input, values := range map[string][]float32{at(inputWeights, v): w, engine.InputInvWeight: {1 / total}, engine.InputLR: {rates[u]}} {
							if err := put(in.F32, input, values); err != nil {
								t.Fatal(err)
							}
						}
						if u == 0 && m == 0 {
							fn := engine.Variant(engine.FuncEval, v)
							if err := r.Run(fn, 0); err != nil {
								t.Fatal(err)
							}
							got, _ := r.Output(fn, outputLogits)
							for i, x := range floats(t, trace, "logits") {
								if math.Abs(float64(got.F32()[i]-x)) > 1e-5 {
									t.Fatalf("logit %d is %v, transformers has %v", i, got.F32()[i], x)
								}
							}
						}
						fn := engine.Variant(engine.FuncMicro, v)
						if err := r.Run(fn, 0); err != nil {
							t.Fatal(err)
						}
						l, _ := r.Output(fn, engine.OutputLoss)
						loss += l.F32()[0]
					}
					if err := r.Run(engine.FuncUpdate, 0); err != nil {
						t.Fatal(err)
					}
					norm, _ := r.Output(engine.FuncUpdate, engine.OutputGradNorm)
					if math.Abs(float64(loss-want[u])) > 1e-4 {
						t.Fatalf("update %d: loss %v, transformers has %v", u+1, loss, want[u])
					}
					if g := norm.F32()[0]; math.Abs(float64(g-norms[u])) > 1e-3*float64(norms[u]) {
						t.Errorf("update %d: gradient norm %v, transformers has %v", u+1, g, norms[u])
					}
				}
			})
		}
	}
}

func envOf(t *testing.T) system.Env {
	t.Helper()
	run, err := rundir.Look(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() }) // there is nothing to lose
	return system.Env{Dir: run, Cache: t.TempDir(), Log: t.Logf}
}
