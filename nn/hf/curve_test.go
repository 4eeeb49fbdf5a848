package hf

import (
	"bytes"
	"math"
	"path/filepath"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

const goldens = "../../engine/testdata/goldens/neox"

type curve struct {
	model    NeoX
	dir      string
	batch, t int
	updates  int
	ids      []int32
	lr, loss []float32
	norm     []float32
}

func openF32(t *testing.T, f interface {
	Tensor(string) (safetensors.Tensor, error)
}, name string) []float32 {
	t.Helper()
	x, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(x.Data)/(x.DType.Bits()/8))
	if err := x.Float32s(out); err != nil {
		t.Fatal(err)
	}
	return out
}

func loadCurve(t *testing.T, variant string) *curve {
	t.Helper()
	c := &curve{dir: filepath.Join(goldens, variant), batch: 8, t: 64, updates: 50}
	config, err := ReadConfig(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	c.model = config.Model.(NeoX)
	trace, err := safetensors.Open(filepath.Join(c.dir, "trace.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer trace.Close()
	c.lr, c.loss, c.norm = openF32(t, trace, "lr"), openF32(t, trace, "loss"), openF32(t, trace, "gradient_norm")
	b, err := safetensors.Open(filepath.Join(goldens, "batches.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ids, err := b.Tensor("ids")
	if err != nil {
		t.Fatal(err)
	}
	c.ids = engine.Tensor{Data: append([]byte(nil), ids.Data...)}.I32()
	return c
}

func (c *curve) training(accumulation int) engine.Training {
	return engine.Training{
		Accumulation: accumulation,
		Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .1, MaxGradNorm: 1},
		Model: func(b *graph.Builder, mode engine.Mode) engine.Objective {
			batch := c.batch / max(accumulation, 1)
			n := batch * c.t
			h := c.model.Hidden(b, Input{IDs: b.Input("ids", graph.T(graph.I32, batch, c.t)), Train: mode.Train})
			loss := b.LinearCrossEntropy(b.Reshape(h, n, c.model.D), c.model.Output(b),
				b.Input("labels", graph.T(graph.I32, n)), b.Input("weights", graph.T(graph.F32, n)), 128)
			return engine.Objective{Sum: loss}
		},
	}
}

// run trains along the curve and returns the losses and gradient norms.
func (c *curve) run(t *testing.T, accumulation int, o engine.CompileOptions) (loss, norm []float32, r *engine.Executable) {
	t.Helper()
	o.Verify = true
	p, err := engine.CompileTraining(c.training(accumulation), o)
	if err != nil {
		t.Fatal(err)
	}
	r, err = p.Load(backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if err := r.Initialize(1); err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Open(filepath.Join(c.dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, s := range p.States {
		if s.Role == graph.Weight {
			if err := r.SetFloats(s.Name, openF32(t, w, s.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	fn := engine.FuncStep
	if accumulation > 1 {
		fn = engine.FuncMicro
	}
	batch := c.batch / max(accumulation, 1)
	for u := range c.updates {
		lr, _ := r.Input(0, engine.InputLR)
		lr.F32()[0] = c.lr[u]
		inv, _ := r.Input(0, engine.InputInvWeight)
		inv.F32()[0] = 1 / float32(c.batch*c.t)
		total := float32(0)
		for m := range max(accumulation, 1) {
			ids, _ := r.Input(0, "ids")
			labels, _ := r.Input(0, "labels")
			weights, _ := r.Input(0, "weights")
			for i := range batch {
				row := c.ids[((u*c.batch)+m*batch+i)*(c.t+1):]
				copy(ids.I32()[i*c.t:(i+1)*c.t], row)
				copy(labels.I32()[i*c.t:(i+1)*c.t], row[1:])
			}
			for i := range weights.F32() {
				weights.F32()[i] = 1
			}
			if err := r.Run(fn, 0); err != nil {
				t.Fatal(err)
			}
			l, _ := r.Output(fn, engine.OutputLoss)
			total += l.F32()[0]
		}
		last := fn
		if accumulation > 1 {
			last = engine.FuncUpdate
			if err := r.Run(last, 0); err != nil {
				t.Fatal(err)
			}
		}
		g, _ := r.Output(last, engine.OutputGradNorm)
		loss, norm = append(loss, total), append(norm, g.F32()[0])
	}
	if r.ArenaUsed() != p.Layout.Bytes {
		t.Errorf("the plan says %d bytes of arena, kernels use %d", p.Layout.Bytes, r.ArenaUsed())
	}
	return loss, norm, r
}

// The loss of every update equals that of transformers' GPTNeoXForCausalLM with
// the same weights and batches.
func TestTrainingCurve(t *testing.T) {
	for _, variant := range []string{"parallel", "sequential"} {
		t.Run(variant, func(t *testing.T) {
			c := loadCurve(t, variant)
			for _, acc := range []int{1, 2} {
				loss, norm, _ := c.run(t, acc, engine.CompileOptions{Recompute: pass.RecomputeNone})
				worst := 0.0
				for u := range loss {
					worst = max(worst, math.Abs(float64(loss[u]-c.loss[u])))
					if math.Abs(float64(loss[u]-c.loss[u])) > 1e-3 {
						t.Fatalf("accumulation %d, update %d: loss %v, transformers has %v", acc, u, loss[u], c.loss[u])
					}
					if math.Abs(float64(norm[u]-c.norm[u])) > 1e-2*float64(c.norm[u]) {
						t.Errorf("accumulation %d, update %d: gradient norm %v, transformers has %v", acc, u, norm[u], c.norm[u])
					}
				}
				t.Logf("accumulation %d: %v -> %v, worst difference %.2g", acc, loss[0], loss[len(loss)-1], worst)
			}
		})
	}
}

// Recomputation changes no bit of any loss, gradient norm or weight.
func TestRecomputeBitEqual(t *testing.T) {
	c := loadCurve(t, "parallel")
	c.updates = 10
	want, wantNorm, r0 := c.run(t, 1, engine.CompileOptions{})
	temps := []int64{r0.Program().Layout.Temps.Bytes}
	for _, mode := range []pass.Recompute{pass.RecomputeActivation, pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull, pass.RecomputeAuto} {
		o := engine.CompileOptions{Recompute: mode, Budget: temps[0] * 2 / 3}
		loss, norm, r := c.run(t, 1, o)
		for u := range loss {
			if loss[u] != want[u] || norm[u] != wantNorm[u] {
				t.Fatalf("%v: update %d: loss %v and norm %v, without recomputation %v and %v", mode, u, loss[u], norm[u], want[u], wantNorm[u])
			}
		}
		for _, s := range r.Program().States {
			a, _ := r0.State(s.Name)
			b, _ := r.State(s.Name)
			if !bytes.Equal(a.Data, b.Data) {
				t.Errorf("%v: state %s differs", mode, s.Name)
			}
		}
		temps = append(temps, r.Program().Layout.Temps.Bytes)
		if mode == pass.RecomputeAuto && temps[len(temps)-1] > o.Budget {
			t.Errorf("auto needs %d bytes of %d", temps[len(temps)-1], o.Budget)
		}
	}
	t.Logf("temporaries: none %d, activation %d, selective %d, full %d, auto %d", temps[0], temps[1], temps[2], temps[3], temps[4])
	if temps[2] >= temps[0] || temps[3] >= temps[2] {
		t.Errorf("recomputation saves nothing: %d", temps)
	}
}

// Mixed precision ends where float32 does.
func TestMixedPrecisionCurve(t *testing.T) {
	if testing.Short() {
		t.Skip("a minute with portable kernels")
	}
	c := loadCurve(t, "parallel")
	want, _, _ := c.run(t, 1, engine.CompileOptions{})
	for _, low := range []graph.DType{graph.BF16, graph.F16} {
		loss, _, _ := c.run(t, 1, engine.CompileOptions{ComputeDType: low})
		last := len(loss) - 1
		t.Logf("%v: %v, float32 %v", low, loss[last], want[last])
		if math.Abs(float64(loss[last]-want[last])) > 0.02*float64(want[last]) {
			t.Errorf("%v ends at %v, float32 at %v", low, loss[last], want[last])
		}
	}
}
