package agiformer

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/system"
)

// goldenNet returns the model of tools/goldens/agiformer.py.
func goldenNet() Net {
	return Net{
		Vocab: 48, D: 24, Layers: 2, Heads: 2, FF: 36, MaxPositions: 32, Kernel: 3, Rotary: true, RotaryBase: 10000,
		Experts: Experts{
			Kinds: sorted([]string{"language", "logic", "spatial", "causal", "standard"}, 5), Choices: 2, Capacity: 1, Relation: 20,
		},
		Memory:        &nn.Memory{Slots: 9, Segment: 8, Writes: 2, Heads: 2, Eps: 1e-5},
		Introspection: &Introspection{Steps: 2},
		Language:      &Language{Width: 16, Layers: 1, Heads: 2, FF: 28},
		Eps:           1e-5,
	}
}

const goldenUpdates, goldenBatch, goldenTime = 30, 4, 26

// golden is a training run of the golden model.
type golden struct {
	trace        *safetensors.File
	accumulation int
	balance      float64
	chunk        int
	options      engine.CompileOptions
	r            *engine.Executable
	loss, norm   []float32
}

func openGolden(t *testing.T) *golden {
	t.Helper()
	f, err := safetensors.Open("testdata/trace.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return &golden{trace: f, accumulation: 1, balance: 0.01}
}

func (g *golden) f32(t *testing.T, name string) []float32 {
	t.Helper()
	return tensor(t, g.trace, name)
}

func tensor(t *testing.T, f *safetensors.File, name string) []float32 {
	t.Helper()
	x, err := f.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	n := 1
	for _, d := range x.Shape {
		n *= d
	}
	out := make([]float32, n)
	if err := x.Float32s(out); err != nil {
		t.Fatal(err)
	}
	return out
}

func (g *golden) ids(t *testing.T, update int) []int32 {
	t.Helper()
	x, err := g.trace.Tensor("ids")
	if err != nil {
		t.Fatal(err)
	}
	n := goldenBatch * (goldenTime + 1)
	all := engine.Tensor{Data: bytes.Clone(x.Data)}.I32()
	return all[update*n : (update+1)*n]
}

// arm compiles the training step and loads it with the golden weights. The model must have exactly these
// weights.
func (g *golden) arm(t *testing.T) {
	t.Helper()
	shape := system.Shape{MicroBatch: goldenBatch / g.accumulation, Accumulation: g.accumulation, CEChunk: g.chunk}
	p, err := engine.CompileTraining(engine.Training{
		Accumulation: g.accumulation,
		Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .1, MaxGradNorm: 1},
		Eval:         true,
		Model: func(b *graph.Builder, m engine.Mode) engine.Objective {
			return goldenNet().objective(b, shape, goldenTime, g.balance, 0.1, m.Train, false)
		},
	}, g.options)
	if err != nil {
		t.Fatal(err)
	}
	g.r = start(t, p)
	w, err := safetensors.Open("testdata/weights.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	left := map[string]bool{}
	for _, x := range w.Tensors() {
		left[x.Name] = true
	}
	for _, s := range p.States {
		if s.Role != graph.Weight {
			continue
		}
		if err := g.r.SetFloats(s.Name, tensor(t, w, s.Name)); err != nil {
			t.Fatal(err)
		}
		delete(left, s.Name)
	}
	if len(left) > 0 {
		t.Fatalf("the model lacks %v", left)
	}
}

// train does the updates from from to to-1.
func (g *golden) train(t *testing.T, from, to int) {
	t.Helper()
	fn, last := engine.FuncStep, engine.FuncStep
	if g.accumulation > 1 {
		fn, last = engine.FuncMicro, engine.FuncUpdate
	}
	rows := goldenBatch / g.accumulation
	for u := from; u < to; u++ {
		loss := float32(0)
		for m := range g.accumulation {
			feed(g.r, g.ids(t, u)[m*rows*(goldenTime+1):], rows, goldenTime)
			g.set(engine.InputInvWeight, 1/float32(goldenBatch*goldenTime))
			g.set(engine.InputLR, 2e-3)
			if err := g.r.Run(fn, 0); err != nil {
				t.Fatal(err)
			}
			l, _ := g.r.Output(fn, engine.OutputLoss)
			loss += l.F32()[0]
		}
		if last != fn {
			if err := g.r.Run(last, 0); err != nil {
				t.Fatal(err)
			}
		}
		n, _ := g.r.Output(last, engine.OutputGradNorm)
		g.loss, g.norm = append(g.loss, loss), append(g.norm, n.F32()[0])
	}
}

func (g *golden) set(name string, v float32) {
	x, _ := g.r.Input(0, name)
	x.F32()[0] = v
}

// far returns the largest difference.
func far(a, b []float32) (d float64) {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	for i := range a {
		d = max(d, math.Abs(float64(a[i]-b[i])))
	}
	return d
}

// TestForwardEqualsPyTorch: before the first update, the model's outputs for the text and about itself equal
// those of the plain model in PyTorch. So sparse dispatch equals running experts one by one, running sums
// equal sums over pairs, and scans equal loops.
func TestForwardEqualsPyTorch(t *testing.T) {
	g := openGolden(t)
	g.chunk = 30 // does not divide the 104 rows, so the last chunk is smaller
	g.arm(t)
	feed(g.r, g.ids(t, 0), goldenBatch, goldenTime)
	if err := g.r.Run(engine.FuncEval, 0); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		output, golden string
		tolerance      float64
	}{
		{outLosses, "losses", 2e-5}, {outErrors, "errors", 2e-5}, {outConf, "confidence", 1e-5}, {outRight, "right", 0},
		{outWanted, "wanted", 0}, {outTaken, "taken", 0}, {outEntropy, "entropy", 1e-4},
	} {
		got, err := g.r.Output(engine.FuncEval, c.output)
		if err != nil {
			t.Fatal(err)
		}
		if d := far(got.F32(), g.f32(t, "first."+c.golden)); d > c.tolerance {
			t.Errorf("%s differ by %g", c.output, d)
		}
	}
	gates, _ := g.r.Output(engine.FuncEval, outGates)
	means := slices.Clone(gates.F32()[:3])
	for i := range means {
		means[i] /= goldenBatch * goldenTime
	}
	if d := far(means, g.f32(t, "first.gates")); d > 1e-5 {
		t.Errorf("gates differ by %g", d)
	}
	wanted, taken := g.f32(t, "first.wanted"), g.f32(t, "first.taken")
	if slices.Equal(wanted, taken) {
		t.Error("the golden drops nothing: capacity is not tested")
	}
}

// TestCurveEqualsPyTorch: thirty updates follow PyTorch's, whatever the passes do to the program.
func TestCurveEqualsPyTorch(t *testing.T) {
	g := openGolden(t)
	g.arm(t)
	g.train(t, 0, goldenUpdates)
	want, norms := g.f32(t, "loss"), g.f32(t, "gradient_norm")
	if d := far(g.loss, want); d > 2e-4 {
		t.Errorf("the losses differ by up to %g:\n%v\nPyTorch has\n%v", d, g.loss, want)
	}
	for u, n := range g.norm {
		if math.Abs(float64(n-norms[u])) > 2e-3*float64(norms[u]) {
			t.Errorf("update %d: gradient norm %v, PyTorch has %v", u, n, norms[u])
		}
	}
	t.Logf("%v -> %v, worst difference %.2g", g.loss[0], g.loss[len(g.loss)-1], far(g.loss, want))
}

// TestGradientsEqualPyTorch: the gradient of each weight has PyTorch's norm.
func TestGradientsEqualPyTorch(t *testing.T) {
	g := openGolden(t)
	g.accumulation = 2 // so that accumulators keep the gradients
	g.arm(t)
	for m := range 2 {
		feed(g.r, g.ids(t, 0)[m*2*(goldenTime+1):], 2, goldenTime)
		g.set(engine.InputInvWeight, 1.0/(goldenBatch*goldenTime))
		if err := g.r.Run(engine.FuncMicro, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range g.r.Program().States {
		if s.Role != graph.Weight {
			continue
		}
		x, _ := g.r.State(engine.Gradient + s.Name)
		sum := 0.0
		for _, v := range x.F32() {
			sum += float64(v) * float64(v)
		}
		want := float64(g.f32(t, "gradient_norm."+s.Name)[0])
		// The balance loss is a product of means, so two halves give another loss than the whole.
		tolerance := 1e-3
		if d := math.Abs(math.Sqrt(sum) - want); d > tolerance*want+2e-4 {
			t.Errorf("%s: gradient norm %v, PyTorch has %v", s.Name, math.Sqrt(sum), want)
		}
	}
}

// TestLogitsEqualPyTorch: the logits are PyTorch's.
func TestLogitsEqualPyTorch(t *testing.T) {
	g := openGolden(t)
	g.arm(t)
	r := armed(t, func(b *graph.Builder) {
		n := goldenNet()
		out := n.Forward(b, Input{IDs: b.Input("ids", graph.T(graph.I32, goldenBatch, goldenTime))})
		b.Output("logits", n.Logits(b, out.Hidden))
	})
	for _, s := range r.Program().States {
		from, _ := g.r.State(s.Name)
		if err := r.SetState(from); err != nil {
			t.Fatal(err)
		}
	}
	feed(g.r, g.ids(t, 0), goldenBatch, goldenTime)
	from, _ := g.r.Input(0, "ids")
	to, _ := r.Input(0, "ids")
	copy(to.Data, from.Data)
	if err := r.Run("f", 0); err != nil {
		t.Fatal(err)
	}
	out, _ := r.Output("f", "logits")
	if d := far(out.F32(), g.f32(t, "first.logits")); d > 2e-5 {
		t.Errorf("logits differ by %g", d)
	}
}

// TestPasses: recomputation changes no bit, bfloat16 changes little, and accumulation changes only the
// balance loss, which is computed for each micro-batch.
func TestPasses(t *testing.T) {
	const updates = 8
	plain := openGolden(t)
	plain.arm(t)
	plain.train(t, 0, updates)
	for _, mode := range []pass.Recompute{pass.RecomputeSelective, pass.RecomputeFull} {
		g := openGolden(t)
		g.options.Recompute = mode
		g.arm(t)
		g.train(t, 0, updates)
		if !slices.Equal(g.loss, plain.loss) || !slices.Equal(g.norm, plain.norm) {
			t.Errorf("recomputation %v changes losses or norms:\n%v\n%v", mode, g.loss, plain.loss)
		}
		sameWeights(t, g.r, plain.r)
		if a, b := g.r.Program().Layout.Temps.Bytes, plain.r.Program().Layout.Temps.Bytes; a >= b {
			t.Errorf("recomputation %v needs %d bytes, none %d", mode, a, b)
		}
	}
	low := openGolden(t)
	low.options.ComputeDType = graph.BF16
	low.arm(t)
	low.train(t, 0, updates)
	if d := far(low.loss, plain.loss); d > 0.1 || d == 0 {
		t.Errorf("bfloat16 differs by %g:\n%v\n%v", d, low.loss, plain.loss)
	}
	one, two := openGolden(t), openGolden(t)
	one.balance, two.balance, two.accumulation = 0, 0, 2
	for _, g := range []*golden{one, two} {
		g.arm(t)
		g.train(t, 0, updates)
	}
	if d := far(one.loss, two.loss); d > 1e-4 {
		t.Errorf("two micro-batches differ by %g:\n%v\n%v", d, one.loss, two.loss)
	}
}

// TestResume: a run that continues from a copy of another's state gets the same bits. No state is hidden, and
// an evaluation leaves none behind.
func TestResume(t *testing.T) {
	whole := openGolden(t)
	whole.arm(t)
	whole.train(t, 0, 3)
	part := openGolden(t)
	part.arm(t)
	for _, s := range part.r.Program().States {
		from, _ := whole.r.State(s.Name)
		if err := part.r.SetState(from); err != nil {
			t.Fatal(err)
		}
	}
	feed(part.r, part.ids(t, 9), goldenBatch, goldenTime)
	if err := part.r.Run(engine.FuncEval, 0); err != nil {
		t.Fatal(err)
	}
	whole.train(t, 3, 6)
	part.train(t, 3, 6)
	if !slices.Equal(whole.loss[3:], part.loss) {
		t.Errorf("resumed losses %v, uninterrupted %v", part.loss, whole.loss[3:])
	}
	sameWeights(t, whole.r, part.r)
}

func sameWeights(t *testing.T, a, b *engine.Executable) {
	t.Helper()
	for _, s := range a.Program().States {
		x, _ := a.State(s.Name)
		y, _ := b.State(s.Name)
		if !bytes.Equal(x.Data, y.Data) {
			t.Errorf("state %s differs", s.Name)
		}
	}
}
