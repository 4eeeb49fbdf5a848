package cloudbase

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// goldenRows, goldenBatches and goldenUpdates describe the goldens, which tools/goldens/cloudbase.py makes
// with networks written plainly in PyTorch, in float64.
const goldenRows, goldenBatches, goldenUpdates = 8, 3, 30

// golden is a network of the script and its file.
type golden struct {
	name   string
	model  Model
	loss   Loss
	masked bool
	file   *safetensors.File
}

func goldens(t *testing.T) []*golden {
	t.Helper()
	base := Model{
		Architecture: "attention", Height: 16, Width: 16, Frames: 4, View: 1, Channels: []int{4, 8, 16}, SpatialAttention: true, TimeAttention: true,
		Norm: "batch", Groups: 2, Angles: "sincos", UseAngles: "both", DenseDropout: []float64{0, 0}, Layers: 2, Heads: 2, StateSize: 4, MaskShare: 0.6, MaskPatch: 8,
	}
	var out []*golden
	add := func(name, kind string, change func(m *Model)) {
		g := &golden{name: name, model: base, loss: Loss{Kind: kind, Alpha: 0.3, Delta: 0.8, Gamma: 1.5, UnderWeight: 1.7, HardFactor: 1.5}}
		if name == "attention" {
			g.loss.HardShare = 0.5
		}
		change(&g.model)
		g.masked = kind == ""
		f, err := safetensors.Open(filepath.Join("testdata", "goldens", name+".safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		g.file = f
		out = append(out, g)
	}
	add("attention", "huber", func(m *Model) { m.Angles, m.NormBias = "linear", true })
	add("view", "huber", func(m *Model) { m.View, m.FilmIdentity = 3, true })
	add("group", "mse", func(m *Model) { m.Norm = "group" })
	add("transformer", "huber_mae", func(m *Model) { m.Architecture = "transformer" })
	add("ssm", "huber", func(m *Model) { m.Architecture = "ssm" })
	add("gnn", "huber_mae", func(m *Model) { m.Architecture = "gnn" })
	add("cnn", "mse", func(m *Model) { m.Architecture = "cnn" })
	add("masked", "", func(m *Model) { m.View = 2 })
	add("frames", "huber", func(m *Model) { m.NormByFrame, m.Angles, m.NormBias = true, "linear", true })
	add("sigmoid", "", func(m *Model) { m.NormByFrame, m.MaskSigmoid = true, true })
	return out
}

func (g *golden) floats(t *testing.T, name string) []float32 {
	t.Helper()
	x, err := g.file.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float32, len(x.Data)/4)
	if err := x.Float32s(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// program compiles the training step of the golden.
func (g *golden) program(t *testing.T, accumulation int, o engine.CompileOptions) *engine.Program {
	t.Helper()
	o.Verify = true
	p, err := engine.CompileTraining(engine.Training{
		Accumulation: accumulation, Eval: true,
		Optimizer: engine.Optimizer{Beta1: 0.9, Beta2: 0.999, Eps: 1e-6, WeightDecay: 0.04, MaxGradNorm: 1},
		Model: func(b *graph.Builder, m engine.Mode) engine.Objective {
			n := &net{Model: &g.model, rows: goldenRows / accumulation, train: m.Train}
			if g.masked {
				return n.reconstruct(b)
			}
			return n.objective(b, &g.loss)
		},
	}, o)
	if err != nil {
		t.Fatalf("%s: %v", g.name, err)
	}
	return p
}

// arm loads the program with the golden's weights.
func (g *golden) arm(t *testing.T, p *engine.Program) *engine.Executable {
	t.Helper()
	r, err := p.Load(backend.CPU(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if err := r.Initialize(1); err != nil {
		t.Fatal(err)
	}
	for _, s := range p.States {
		if s.Role == graph.Weight || s.Role == graph.Buffer {
			if err := r.SetFloats(s.Name, g.floats(t, "weight."+s.Name)); err != nil {
				t.Fatalf("%s: %v", g.name, err)
			}
		}
	}
	return r
}

// fill writes part of a batch of the golden to the inputs.
func (g *golden) fill(t *testing.T, r *engine.Executable, batch, part, parts int) {
	t.Helper()
	for _, name := range []string{inputImages, inputAngles, inputBase, inputMask} {
		in, ok := r.Input(0, name)
		if !ok {
			continue
		}
		all := g.floats(t, "batch."+name)
		n := len(all) / goldenBatches / parts
		copy(in.F32(), all[(batch*parts+part)*n:][:n])
	}
	w, _ := r.Input(0, inputWeights)
	for i := range w.F32() {
		w.F32()[i] = 1
	}
	inv, _ := r.Input(0, engine.InputInvWeight)
	inv.F32()[0] = 1.0 / goldenRows
	lr, _ := r.Input(0, engine.InputLR)
	lr.F32()[0] = 1e-3
}

// curve trains and returns the losses and gradient norms.
func (g *golden) curve(t *testing.T, r *engine.Executable, updates, accumulation int) (loss, norm []float32) {
	t.Helper()
	for u := range updates {
		sum := float32(0)
		fn := engine.FuncStep
		if accumulation > 1 {
			fn = engine.FuncMicro
		}
		for m := range accumulation {
			g.fill(t, r, u%goldenBatches, m, accumulation)
			if err := r.Run(fn, 0); err != nil {
				t.Fatal(err)
			}
			x, _ := r.Output(fn, engine.OutputLoss)
			sum += x.F32()[0]
		}
		if accumulation > 1 {
			fn = engine.FuncUpdate
			if err := r.Run(fn, 0); err != nil {
				t.Fatal(err)
			}
		}
		n, _ := r.Output(fn, engine.OutputGradNorm)
		loss, norm = append(loss, sum), append(norm, n.F32()[0])
	}
	return loss, norm
}

func furthest(got, want []float32) (worst float64, at int) {
	for i := range want {
		if d := math.Abs(float64(got[i]-want[i])) / max(1, math.Abs(float64(want[i]))); d > worst || math.IsNaN(d) {
			worst, at = d, i
		}
	}
	return worst, at
}

// TestGoldens compares predictions, the losses and gradient norms of 30 updates and the resulting running
// statistics with PyTorch's.
func TestGoldens(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.name, func(t *testing.T) {
			r := g.arm(t, g.program(t, 1, engine.CompileOptions{}))
			g.fill(t, r, 0, 0, 1)
			if err := r.Run(engine.FuncEval, 0); err != nil {
				t.Fatal(err)
			}
			name := outputBase
			if g.masked {
				name = engine.OutputSum
			}
			out, _ := r.Output(engine.FuncEval, name)
			if d, at := furthest(out.F32(), g.floats(t, "answer")); !(d < 2e-5) {
				t.Errorf("answer %d is off by %g: %v, PyTorch %v", at, d, out.F32(), g.floats(t, "answer"))
			}
			loss, norm := g.curve(t, r, goldenUpdates, 1)
			wantLoss, wantNorm := g.floats(t, "loss"), g.floats(t, "norm")
			dl, al := furthest(loss, wantLoss)
			dn, an := furthest(norm, wantNorm)
			t.Logf("largest deviation of the loss %.2g, of the gradient norm %.2g", dl, dn)
			if !(dl < 1e-3) {
				t.Errorf("loss of update %d is %v, PyTorch %v", al, loss[al], wantLoss[al])
			}
			if !(dn < 2e-2) {
				t.Errorf("gradient norm of update %d is %v, PyTorch %v", an, norm[an], wantNorm[an])
			}
			for _, s := range r.Program().States {
				if s.Role == graph.Buffer && strings.Contains(s.Name, "running") {
					x, _ := r.State(s.Name)
					// After an idle bias, the mean follows the drift of that bias.
					tolerance := 1e-3
					if strings.HasSuffix(s.Name, "running_mean") && (g.model.NormBias || strings.HasPrefix(s.Name, "dense.0")) {
						tolerance = 3e-2
					}
					if d, _ := furthest(x.F32(), g.floats(t, "end."+s.Name)); !(d < tolerance) {
						t.Errorf("%s is off by %g after %d updates", s.Name, d, goldenUpdates)
					}
				}
			}
		})
	}
}

// TestLosses compares every kind of loss and its gradient with PyTorch's, with and without hard mining.
func TestLosses(t *testing.T) {
	f, err := safetensors.Open(filepath.Join("testdata", "goldens", "losses.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g := &golden{file: f}
	const n = 32
	for _, kind := range []string{"huber", "mae", "mse", "mse_mae", "huber_mae", "weighted_huber", "weighted_huber_mae"} {
		for suffix, share := range map[string]float64{"": 0, ".hard": 0.25} {
			l := Loss{Kind: kind, Alpha: 0.3, Delta: 0.8, Gamma: 1.5, UnderWeight: 1.7, HardShare: share, HardFactor: 1.5}
			p, err := engine.CompileTraining(engine.Training{Accumulation: 1, Model: func(b *graph.Builder, m engine.Mode) engine.Objective {
				each := l.each(b, b.Param("y", graph.Zeros(), n), b.Input("truth", graph.T(graph.F32, n)))
				return engine.Objective{Sum: l.total(b, each, m.Train), Outputs: []graph.Output{{Name: "each", Value: each}}}
			}}, engine.CompileOptions{Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Load(backend.CPU(1))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close() })
			if err := r.Initialize(0); err != nil {
				t.Fatal(err)
			}
			if err := r.SetFloats("y", g.floats(t, "y")); err != nil {
				t.Fatal(err)
			}
			truth, _ := r.Input(0, "truth")
			copy(truth.F32(), g.floats(t, "truth"))
			inv, _ := r.Input(0, engine.InputInvWeight)
			inv.F32()[0] = 1
			if err := r.Run(engine.FuncStep, 0); err != nil {
				t.Fatal(err)
			}
			each, _ := r.Output(engine.FuncStep, "each")
			if d, at := furthest(each.F32(), g.floats(t, kind)); d > 1e-6 {
				t.Errorf("%s of example %d is %v, PyTorch %v", kind, at, each.F32()[at], g.floats(t, kind)[at])
			}
			m, _ := r.State(engine.Moment1 + "y") // the gradient itself, because beta1 is 0
			if d, at := furthest(m.F32(), g.floats(t, kind+suffix+".gradient")); d > 1e-6 {
				t.Errorf("gradient of %s%s for example %d is %v, PyTorch %v", kind, suffix, at, m.F32()[at], g.floats(t, kind+suffix+".gradient")[at])
			}
		}
	}
}

// idle reports, by the suffix of its name, whether a weight has no effect: a shift of all scores before a
// softmax, or a shift that batch normalization subtracts again.
func (g *golden) idle(name string) bool {
	suffixes := []string{"temporal_attention.1.bias"}
	if g.model.Norm == "batch" {
		suffixes = append(suffixes, "transformer.norm.bias", "ssm.norm.bias", "grid.norm.bias")
		if g.model.NormBias {
			suffixes = append(suffixes, "conv.bias", "linear.bias")
		}
	}
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) })
}

// TestGradientFlow: every weight of every network gets a gradient; for idle ones it is rounding noise.
func TestGradientFlow(t *testing.T) {
	for _, g := range goldens(t) {
		p := g.program(t, 1, engine.CompileOptions{})
		if len(p.Untrained) > 0 {
			t.Errorf("%s: no gradient reaches %v", g.name, p.Untrained)
		}
		r := g.arm(t, p)
		_, norm := g.curve(t, r, 1, 1)
		for _, s := range p.TrainedWeights() {
			m, _ := r.State(engine.Moment1 + s.Name)
			most := 0.0
			for _, v := range m.F32() {
				most = max(most, math.Abs(float64(v))*10) // the first moment is a tenth of the gradient
			}
			if idle := g.idle(s.Name); most == 0 || idle && most > 1e-6*max(1, float64(norm[0])) {
				t.Errorf("%s: the gradient of %s is up to %g", g.name, s.Name, most)
			}
		}
	}
}

// sameBits fails if two runs differ in a weight, a running statistic or a moment.
func sameBits(t *testing.T, what string, a, b *engine.Executable) {
	t.Helper()
	for _, s := range a.Program().States {
		x, _ := a.State(s.Name)
		y, err := b.State(s.Name)
		if err != nil || string(x.Data) != string(y.Data) {
			t.Errorf("%s: state %s differs", what, s.Name)
		}
	}
}

// statistics returns how often a step updates running statistics.
func statistics(p *engine.Program) (n int) {
	for _, x := range p.Func(engine.FuncStep).F.Nodes {
		if _, ok := x.Op.(graph.RunningStats); ok {
			n++
		}
	}
	return n
}

// TestRecompute: dropping activations changes no bit. That includes the running statistics, which a repeated
// update would move twice.
func TestRecompute(t *testing.T) {
	for _, g := range goldens(t) {
		kept := g.program(t, 1, engine.CompileOptions{})
		plain := g.arm(t, kept)
		want, _ := g.curve(t, plain, 4, 1)
		for _, mode := range []pass.Recompute{pass.RecomputeSelective, pass.RecomputeFull} {
			p := g.program(t, 1, engine.CompileOptions{Recompute: mode})
			for _, n := range p.Func(engine.FuncStep).F.Nodes {
				if _, ok := n.Op.(graph.RunningStats); ok && n.Clone {
					t.Errorf("%s, recompute %v: %s is computed again", g.name, mode, n.Layer)
				}
			}
			if a, b := statistics(p), statistics(kept); a != b {
				t.Errorf("%s, recompute %v: %d updates of running statistics, %d without", g.name, mode, a, b)
			}
			r := g.arm(t, p)
			got, _ := g.curve(t, r, 4, 1)
			what := fmt.Sprintf("%s, recompute %v", g.name, mode)
			if d, at := furthest(got, want); d != 0 {
				t.Errorf("%s: loss of update %d is %v, plain %v", what, at, got[at], want[at])
			}
			sameBits(t, what, plain, r)
		}
	}
}

// TestAccumulation: two micro-batches of two equal one of four if examples are independent (group
// normalization, no hard mining).
func TestAccumulation(t *testing.T) {
	for _, g := range goldens(t) {
		if g.name != "group" && g.name != "cnn" {
			continue
		}
		one := g.arm(t, g.program(t, 1, engine.CompileOptions{}))
		two := g.arm(t, g.program(t, 2, engine.CompileOptions{}))
		a, an := g.curve(t, one, 10, 1)
		b, bn := g.curve(t, two, 10, 2)
		if d, at := furthest(b, a); d > 1e-4 {
			t.Errorf("%s: loss of update %d: %v in two parts, %v whole", g.name, at, b[at], a[at])
		}
		if d, at := furthest(bn, an); d > 1e-3 {
			t.Errorf("%s: gradient norm of update %d: %v in two parts, %v whole", g.name, at, bn[at], an[at])
		}
	}
}

// TestBF16: mixed precision follows the curve up to rounding.
func TestBF16(t *testing.T) {
	for _, g := range goldens(t) {
		r := g.arm(t, g.program(t, 1, engine.CompileOptions{ComputeDType: graph.BF16}))
		loss, _ := g.curve(t, r, 6, 1)
		if d, at := furthest(loss, g.floats(t, "loss")[:6]); !(d < 0.25) {
			t.Errorf("%s: loss of update %d is %v, float32 %v", g.name, at, loss[at], g.floats(t, "loss")[at])
		}
	}
}

// TestStates: the scales are in the program's buffers, so checkpoints contain them.
func TestStates(t *testing.T) {
	g := goldens(t)[0]
	r := g.arm(t, g.program(t, 1, engine.CompileOptions{}))
	s := scaler{Base: moments{1.5, 0.25}, Angles: [2]moments{{30, 5}, {200, 50}}}
	if err := s.set(r); err != nil {
		t.Fatal(err)
	}
	if got, err := scalesOf(r); err != nil || got != s {
		t.Errorf("scales %+v, set %+v: %v", got, s, err)
	}
}
