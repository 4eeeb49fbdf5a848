package compare

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn/hf"
)

// encoder is a training step of a small encoder with every kind of operation
// between a token and its loss.
func encoder(eps float64) engine.Training {
	m := hf.BERT{Vocab: 60, D: 64, Layers: 2, Heads: 2, FF: 128, MaxPositions: 16, Types: 1, Activation: "gelu", Eps: eps, InitStd: .06}
	const rows, length = 6, 16
	return engine.Training{
		Optimizer: engine.Optimizer{Beta1: .9, Beta2: .98, Eps: 1e-8, WeightDecay: .01, MaxGradNorm: 1},
		Model: func(b *graph.Builder, mode engine.Mode) engine.Objective {
			in := hf.Input{IDs: b.Input("ids", graph.T(graph.I32, rows, length)), Lens: b.Input("lens", graph.T(graph.I32, rows)), Train: mode.Train}
			y := m.MaskedLogits(b, in, b.Reshape(m.Hidden(b, in), rows*length, m.D))
			return engine.Objective{Sum: b.CrossEntropy(y, b.Input("labels", graph.T(graph.I32, rows*length)), b.Input("weights", graph.T(graph.F32, rows*length)))}
		},
	}
}

// load compiles a training step in a format and loads it with weights and inputs.
func load(t *testing.T, tr engine.Training, low graph.DType, fused bool, on engine.Backend) *engine.Executable {
	t.Helper()
	p, err := engine.CompileTraining(tr, engine.CompileOptions{ComputeDType: low, Label: true, Verify: true, Skip: func(pass string) bool { return pass == "fuse" && !fused }})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Load(on)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Initialize(1); err != nil {
		t.Fatal(err)
	}
	for _, v := range p.Inputs {
		x, _ := r.Input(0, v.Name)
		switch v.Name {
		case engine.InputLR:
			x.F32()[0] = 1e-3
		case engine.InputInvWeight:
			x.F32()[0] = 1. / 96
		case "lens":
			for i := range x.I32() {
				x.I32()[i] = int32(16 - i)
			}
		default:
			if v.Type.DType == graph.F32 {
				for i := range x.F32() {
					x.F32()[i] = 1
				}
				break
			}
			for i := range x.I32() {
				x.I32()[i] = int32(i * 7919 % 60)
			}
		}
	}
	return r
}

// faulty is a device on which a kernel is wrong: spoil gets the 16-bit result of
// each node and reports whether it changed it.
type faulty struct {
	engine.Backend
	spoil func(n *graph.Node, elems []uint16) bool
}

func (d faulty) Load(p *engine.Program) (engine.Image, error) {
	image, err := d.Backend.Load(p)
	return &spoiled{image, p, d.spoil}, err
}

type spoiled struct {
	engine.Image
	p     *engine.Program
	spoil func(n *graph.Node, elems []uint16) bool
}

func (s *spoiled) Observe(o *engine.Observer) {
	if o == nil {
		s.Image.Observe(nil)
		return
	}
	f := s.p.Func(engine.FuncStep)
	s.Image.Observe(&engine.Observer{Before: o.Before, After: func(n *graph.Node, took time.Duration) bool {
		if v := n.Out[0]; v.DType().Half() && !graph.IsView(n.Op) {
			at, err := s.p.Place(f, v)
			if err != nil {
				panic(err)
			}
			t := engine.Tensor{Type: v.Type, Data: make([]byte, v.Type.Bytes())}
			offset := s.p.Layout.Region(at.Region).Offset + at.Offset
			if err := s.Read(t.Data, offset); err != nil {
				panic(err)
			}
			if s.spoil(n, t.U16()) {
				if err := s.Write(offset, t.Data); err != nil {
					panic(err)
				}
			}
		}
		return o.After == nil || o.After(n, took)
	}})
}

// The formats differ everywhere, and nowhere by more than they explain.
func TestCleanPair(t *testing.T) {
	for _, low := range []graph.DType{graph.BF16, graph.F16} {
		for _, fused := range []bool{false, true} {
			a, b := load(t, encoder(1e-5), graph.F32, false, backend.CPU(1)), load(t, encoder(1e-5), low, fused, backend.CPU(1))
			for update := range 3 {
				r, err := Run(a, b, engine.FuncStep, 0, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Findings) > 0 || r.Unjudged > 0 || r.Compared < 60 {
					t.Errorf("%v, fused %v, update %d: %d values compared, %v", low, fused, update, r.Compared, r.Findings)
				}
				if len(r.Widest) == 0 || r.Widest[0].Middle == 0 {
					t.Errorf("%v: nothing differs at all: the formats were not compared", low)
				}
			}
		}
	}
}

// Examining suspects runs the function again: the states are those after one run.
func TestRunLeavesOneUpdate(t *testing.T) {
	a, b, once := load(t, encoder(1e-5), graph.F32, false, backend.CPU(1)), load(t, encoder(1e-5), graph.BF16, false, backend.CPU(1)), load(t, encoder(1e-5), graph.BF16, false, backend.CPU(1))
	if _, err := Run(a, b, engine.FuncStep, 0, Options{Factor: 1e-3}); err != nil { // everything is suspect
		t.Fatal(err)
	}
	if err := once.Run(engine.FuncStep, 0); err != nil {
		t.Fatal(err)
	}
	for _, s := range b.Program().States {
		x, err := b.State(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		y, err := once.State(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x.Data, y.Data) {
			t.Errorf("%s is not what one update leaves", s.Name)
		}
	}
}

// A kernel that gets one row wrong is named first: operation, layer and row.
func TestWrongKernel(t *testing.T) {
	for _, c := range []struct {
		op, layer string
		backward  bool
		row       int
	}{
		{"matmul", "bert.encoder.layer.1.intermediate.dense", false, 37},
		{"layer_norm", "bert.encoder.layer.0.output.LayerNorm", false, 5},
		{"attention", "bert.encoder.layer.0.attention.self", false, 18},
		{"gelu_grad", "bert.encoder.layer.1.intermediate", true, 70},
		{"layer_norm_grad", "bert.encoder.layer.1.output.LayerNorm", true, 95},
	} {
		wrong := func(n *graph.Node, elems []uint16) bool {
			if n.Op.Name() != c.op || n.Layer != c.layer || n.Backward != c.backward {
				return false
			}
			w := n.Out[0].Shape().Last()
			for i := range w / 8 { // an eighth of the row gets the wrong sign
				elems[c.row*w+i] ^= 0x8000
			}
			return true
		}
		a, b := load(t, encoder(1e-5), graph.F32, false, backend.CPU(1)), load(t, encoder(1e-5), graph.BF16, false, faulty{backend.CPU(1), wrong})
		r, err := Run(a, b, engine.FuncStep, 0, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Findings) == 0 {
			t.Errorf("%s of %s: not found", c.op, c.layer)
			continue
		}
		f := r.Findings[0]
		if f.Cause != Own || f.Op != c.op || f.Layer != c.layer || f.Backward != c.backward || f.Suspect != 1 || f.Worst[0].row != c.row {
			t.Errorf("%s of %s, row %d: found %v", c.op, c.layer, c.row, f)
		}
		for _, later := range r.Findings[1:] {
			if later.Cause == Own {
				t.Errorf("%s of %s: %v is right for what it was given", c.op, c.layer, later)
			}
		}
	}
}

// A row that is not a number in one program only is found where it arises.
func TestNotANumber(t *testing.T) {
	infinite := func(n *graph.Node, elems []uint16) bool {
		if n.Op.Name() != "gelu" || n.Layer != "bert.encoder.layer.0.intermediate" {
			return false
		}
		elems[3*n.Out[0].Shape().Last()] = 0x7c00
		return true
	}
	a, b := load(t, encoder(1e-5), graph.F32, false, backend.CPU(1)), load(t, encoder(1e-5), graph.F16, false, faulty{backend.CPU(1), infinite})
	r, err := Run(a, b, engine.FuncStep, 0, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) == 0 || r.Findings[0].Op != "gelu" || r.Findings[0].Worst[0].row != 3 || !math.IsInf(float64(r.Findings[0].Worst[0].Difference), 1) {
		t.Errorf("found %v", r.Findings)
	}
}

// In 16 bits the norm of a nearly constant row loses what distinguished its elements.
// That is not a kernel's fault; it is reported as amplification, with the row.
func TestNearlyConstantRow(t *testing.T) {
	const rows, width, flat = 8, 64, 5
	training := engine.Training{
		Optimizer: engine.Optimizer{Beta1: .9, Beta2: .98, Eps: 1e-8},
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			x := b.Input("rows", graph.T(graph.F32, rows, width))
			var h *graph.Value
			b.Scope("mix", func() { h = b.Linear(x, b.Param("weight", graph.Normal(.1), width, width), nil) })
			b.Scope("norm", func() {
				h = b.LayerNorm(h, b.Param("weight", graph.Ones(), width), b.Param("bias", graph.Zeros(), width), 1e-12)
			})
			return engine.Objective{Sum: b.Sum(b.Mul(h, h))}
		},
	}
	a, b := load(t, training, graph.F32, false, backend.CPU(1)), load(t, training, graph.BF16, false, backend.CPU(1))
	for _, r := range []*engine.Executable{a, b} {
		unit := make([]float32, width*width)
		for i := range width {
			unit[i*width+i] = 1
		}
		if err := r.SetFloats("mix.weight", unit); err != nil {
			t.Fatal(err)
		}
		x, _ := r.Input(0, "rows")
		for i := range x.F32() {
			row, k := i/width, i%width
			x.F32()[i] = float32(math.Sin(float64(i)))
			if row == flat {
				x.F32()[i] = 1 + 1e-3*float32(k%7)
			}
		}
	}
	r, err := Run(a, b, engine.FuncStep, 0, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Findings) == 0 {
		t.Fatal("found nothing")
	}
	f := r.Findings[0]
	if f.Cause != Amplified || f.Op != "layer_norm" || f.Layer != "norm" || f.Suspect != 1 || !slices.Equal(f.Worst[0].At, []int{flat}) {
		t.Errorf("found %v", f)
	}
	if from := f.Worst[0].From; len(from) != 1 || from[0].Mean < .99 || from[0].Deviation > .01 {
		t.Errorf("the row that it comes from is %v", from)
	}
	if !strings.Contains(f.String(), "row [5] differs by") {
		t.Errorf("printed as %s", f)
	}
}
