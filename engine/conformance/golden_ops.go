package conformance

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// goldenOps build the forward half of each operation from its golden's inputs,
// and state the tolerance.
var goldenOps = map[string]func(m *goldenMaker){
	"linear": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 1, Terms: 33}
		var bias *graph.Value
		if m.has("bias") {
			bias = m.arg("bias")
		}
		m.out("y", m.Linear(m.arg("x"), m.arg("weight"), bias))
	},
	"matmul": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 1, Terms: 65}
		m.out("y", m.MatMul(m.arg("a"), m.arg("b"), m.Attrs.TransA, m.Attrs.TransB))
	},
	"embedding": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 1, Terms: 8}
		m.out("y", m.Embedding(m.arg("weight"), m.arg("ids")))
	},

	"layer_norm": func(m *goldenMaker) {
		x := m.arg("x")
		m.tol = Tolerance{Ulps: 4, Terms: x.Shape().Last() + x.Shape().Rows()}
		if m.Case == "offset" {
			m.tol.Abs = 1e-4 // the mean is 100 times the deviation
		}
		gamma, beta := m.affine(x)
		m.out("y", m.LayerNorm(x, gamma, beta, m.Attrs.Eps))
	},
	"rms_norm": func(m *goldenMaker) {
		x := m.arg("x")
		m.tol = Tolerance{Ulps: 4, Terms: x.Shape().Last() + x.Shape().Rows()}
		m.out("y", m.RMSNorm(x, m.arg("weight"), m.Attrs.Eps))
	},

	"gelu_erf":   oneArg(graph.FnGELU),
	"gelu_tanh":  oneArg(graph.FnGELUTanh),
	"silu":       oneArg(graph.FnSiLU),
	"relu":       oneArg(graph.FnRelu),
	"leaky_relu": oneArg(graph.FnLeakyRelu),
	"elu":        oneArg(graph.FnElu),
	"tanh":       oneArg(graph.FnTanh),
	"sigmoid":    oneArg(graph.FnSigmoid),
	"softplus":   oneArg(graph.FnSoftplus),
	"exp":        oneArg(graph.FnExp),
	"softmax": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 32, Terms: 100}
		m.out("y", m.along(m.Attrs.Axis, m.arg("x"), m.Softmax))
	},
	"log_softmax": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 32, Terms: 100}
		m.out("y", m.along(m.Attrs.Axis, m.arg("x"), func(x *graph.Value) *graph.Value {
			x = m.Sub(x, m.MaxKeep(x, -1))
			return m.Sub(x, m.Log(m.SumKeep(m.Exp(x), -1)))
		}))
	},

	"attention": goldenAttention,
	"rotary": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 2, Terms: 2}
		x := m.arg("x")
		s := x.Shape()
		table := m.RotaryTable(m.Attrs.First+s[2], m.Attrs.Rotary, m.Attrs.Base)
		first := m.input("first", graph.T(graph.I32, s[0]), func() float64 { return float64(m.Attrs.First) })
		op := graph.Rotary{Heads: s[1], Dims: m.Attrs.Rotary, Offset: true}
		m.out("y", m.headsFirst(s[1], m.Rotary(op, m.headsLast(x), table, first)))
	},

	"cross_entropy": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 64, Terms: 35}
		logits := m.arg("logits")
		m.meanLoss(func(labels, weights *graph.Value) *graph.Value { return m.CrossEntropy(logits, labels, weights) })
	},
	"linear_cross_entropy": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 64, Terms: 42}
		x, w := m.arg("x"), m.arg("weight")
		m.meanLoss(func(labels, weights *graph.Value) *graph.Value { return m.LinearCrossEntropy(x, w, labels, weights, 5) })
	},
	"mean_squared_error": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 2, Terms: 20}
		m.out("loss", m.Mean(m.Square(m.Sub(m.arg("x"), m.arg("target")))))
	},
	// Huber 1964: d^2/2 up to delta, then linear. With c = min(|d|, delta) it is c*(|d| - c/2).
	"huber": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 2, Terms: 20}
		d := m.Apply(graph.FnAbs, m.Sub(m.arg("x"), m.arg("target")))
		c := m.MinC(d, m.Attrs.Delta)
		m.out("loss", m.Mean(m.Mul(c, m.Sub(d, m.MulC(c, 0.5)))))
	},

	"sum":  reduction(graph.ReduceSum),
	"mean": reduction(graph.ReduceMean),
	"max":  reduction(graph.ReduceMax),
	"add":  twoArgs(graph.FnAdd),
	"sub":  twoArgs(graph.FnSub),
	"mul":  twoArgs(graph.FnMul),
	"div":  twoArgs(graph.FnDiv),
	"gather": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 1, Terms: 5}
		if m.Attrs.Axis == 1 {
			m.out("y", m.Gather(m.arg("x"), m.arg("index")))
			return
		}
		m.out("y", m.Embedding(m.arg("x"), m.arg("index")))
	},
	"scatter_add": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 1, Terms: 5}
		m.out("y", m.Emit(graph.EmbeddingGrad{Vocab: m.Attrs.Rows}, m.arg("x"), m.arg("index"))[0])
	},
	"concat": func(m *goldenMaker) {
		var xs []*graph.Value
		for i := 0; m.has(fmt.Sprint("x", i)); i++ {
			xs = append(xs, m.arg(fmt.Sprint("x", i)))
		}
		m.out("y", m.Concat(m.Attrs.Axis, xs...))
	},
	"slice": func(m *goldenMaker) {
		m.out("y", m.Slice(m.arg("x"), m.Attrs.Axis, m.Attrs.Start, m.Attrs.Stop-m.Attrs.Start))
	},
	"transpose": func(m *goldenMaker) { m.out("y", m.Transpose(m.arg("x"), m.Attrs.Axes...)) },

	"adamw":     goldenAdamW,
	"adamw8bit": goldenSteps,
	"lion":      goldenSteps,
	"adafactor": goldenSteps,
	"muon":      goldenSteps,
	"clip_global_norm": func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 4}
		x0, x1 := m.arg("x0"), m.arg("x1")
		norm := m.GlobalNorm(x0, x1)
		m.out("norm", norm)
		scale := m.clip(norm, m.Attrs.MaxNorm)
		m.out("y0", m.Mul(x0, scale))
		m.out("y1", m.Mul(x1, scale))
	},
}

func oneArg(fn graph.Fn) func(m *goldenMaker) {
	return func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 16, Abs: 0x1p-21}
		alpha := m.Attrs.Alpha
		if fn == graph.FnLeakyRelu {
			alpha = m.Attrs.Slope
		}
		m.out("y", m.Emit(graph.Elementwise{Fn: fn, Alpha: alpha}, m.arg("x"))[0])
	}
}

func twoArgs(fn graph.Fn) func(m *goldenMaker) {
	return func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 4, Terms: 6}
		m.out("y", m.Apply(fn, m.arg("a"), m.arg("b")))
	}
}

func reduction(kind graph.ReduceKind) func(m *goldenMaker) {
	return func(m *goldenMaker) {
		m.tol = Tolerance{Ulps: 2, Terms: 60}
		op := graph.Reduce{Kind: kind, Keep: m.Attrs.Keep}
		for _, a := range m.Attrs.Axes {
			op.Axes |= 1 << a
		}
		m.out("y", m.Emit(op, m.arg("x"))[0])
	}
}

// affine are the scale and shift of a norm: 1 and 0 if the golden has none.
func (m *goldenMaker) affine(x *graph.Value) (gamma, beta *graph.Value) {
	if m.has("weight") {
		return m.arg("weight"), m.arg("bias")
	}
	return m.constant("weight", 1, x.Shape().Last()), m.constant("bias", 0, x.Shape().Last())
}

// along applies a function of the last dimension along another one.
func (m *goldenMaker) along(axis int, x *graph.Value, fn func(x *graph.Value) *graph.Value) *graph.Value {
	rank := len(x.Shape())
	if axis < 0 || axis == rank-1 {
		return fn(x)
	}
	perm := make([]int, rank)
	for i := range perm {
		perm[i] = i
	}
	perm[axis], perm[rank-1] = rank-1, axis
	return m.Transpose(fn(m.Transpose(x, perm...)), perm...)
}

// headsLast turns [B,H,T,K] into [B,T,H*K], headsFirst turns it back.
func (m *goldenMaker) headsLast(x *graph.Value) *graph.Value {
	s := x.Shape()
	return m.Reshape(m.Transpose(x, 0, 2, 1, 3), s[0], s[2], s[1]*s[3])
}

func (m *goldenMaker) headsFirst(heads int, x *graph.Value) *graph.Value {
	s := x.Shape()
	return m.Transpose(m.Reshape(x, s[0], s[1], heads, s[2]/heads), 0, 2, 1, 3)
}

func goldenAttention(m *goldenMaker) {
	q, k, v := m.arg("q"), m.arg("k"), m.arg("v")
	heads := q.Shape()[1]
	m.tol = Tolerance{Ulps: 32, Terms: q.Shape()[3] + k.Shape()[2]}
	op := graph.Attention{Heads: heads, KVHeads: k.Shape()[1], Causal: m.Attrs.Causal, Scale: m.Attrs.Scale, Lens: m.has("key_lengths")}
	in := []*graph.Value{m.headsLast(q), m.headsLast(k), m.headsLast(v)}
	if op.Lens {
		in = append(in, m.arg("key_lengths"))
	}
	y := m.Emit(op, in...)
	m.out("y", m.headsFirst(heads, y[0]))
	m.out("lse", y[1])
}

// meanLoss is the weighted mean: the sum of loss, divided by the weights of the
// rows that count.
func (m *goldenMaker) meanLoss(loss func(labels, weights *graph.Value) *graph.Value) {
	labels := m.arg("target")
	i := -1
	weights := m.input("row_weights", labels.Type.With(graph.F32), func() float64 {
		i++
		switch {
		case m.data["in.target"][i] < 0:
			return 0
		case m.has("weights"):
			return m.data["in.weights"][i]
		}
		return 1
	})
	sum := m.Sum(weights)
	m.out("weight_sum", sum)
	m.out("loss", m.Div(loss(labels, weights), sum))
}

// clip is the factor that brings a norm down to limit, as in PyTorch.
func (m *goldenMaker) clip(norm *graph.Value, limit float64) *graph.Value {
	return m.MinC(m.Div(m.Scalar(limit), m.AddC(norm, 1e-6)), 1)
}

// goldenAdamW makes all updates one after the other on the states, copying
// each version before the next update overwrites it.
func goldenAdamW(m *goldenMaker) {
	m.tol = Tolerance{Ulps: 64, Abs: 0x1p-20}
	names := []string{"weight", "bias", "scale", "long"}
	type param struct {
		w, mom, v, grads *graph.Value
		after            []*graph.Value
	}
	params := map[string]*param{}
	for _, name := range names {
		typ := m.types["in."+name]
		i := -1
		zero := func() float64 { return 0 }
		params[name] = &param{
			w:     m.state(name, typ, func() float64 { i++; return m.data["in."+name][i] }),
			mom:   m.state(name+"_m", typ, zero),
			v:     m.state(name+"_v", typ, zero),
			grads: m.arg("d_" + name),
		}
	}
	updates := params["scale"].grads.Shape()[0]
	one := m.Scalar(1)
	var norms []*graph.Value
	for u := range updates {
		var grads []*graph.Value
		for _, name := range names {
			p := params[name]
			grads = append(grads, m.Reshape(m.Slice(p.grads, 0, u, 1), p.w.Shape()...))
		}
		norm := m.GlobalNorm(grads...)
		norms = append(norms, m.Reshape(norm, 1))
		scale := one
		if m.Attrs.MaxGradNorm > 0 {
			scale = m.clip(norm, m.Attrs.MaxGradNorm)
		}
		for i, name := range names {
			p := params[name]
			op := graph.AdamW{Beta1: m.Attrs.Beta1, Beta2: m.Attrs.Beta2, Eps: m.Attrs.Eps, LRScale: 1}
			if slices.Contains(m.Attrs.Decayed, name) {
				op.WeightDecay = m.Attrs.WeightDecay
			}
			y := m.Emit(op, p.w, grads[i], p.mom, p.v, m.Scalar(m.Attrs.LR), scale, m.Scalar(float64(u+1)), one)
			p.w, p.mom, p.v = y[0], y[1], y[2]
			p.after = append(p.after, m.Apply(graph.FnCopy, m.Reshape(p.w, append([]int{1}, p.w.Shape()...)...)))
		}
	}
	m.out("gradient_norm", m.Concat(0, norms...))
	for _, name := range names {
		p := params[name]
		m.out(name, m.Concat(0, p.after...))
		m.out(name+"_m", p.mom)
		m.out(name+"_v", p.v)
	}
}

// goldenSteps makes all updates of one tensor, whose gradients are sums of two inputs. An
// 8-bit moment near the boundary of two codes may get the other one, which changes its
// updates by a hundredth.
func goldenSteps(m *goldenMaker) {
	a := m.Attrs
	typ := m.types["in.w"]
	var op graph.Optimizer
	var states []graph.Type
	switch m.Op {
	case "lion":
		op, states = graph.Lion{Beta1: a.Beta1, Beta2: a.Beta2, WeightDecay: a.WeightDecay, LRScale: 1}, []graph.Type{typ}
		m.tol = Tolerance{Ulps: 64, Abs: 0x1p-20}
	case "muon":
		rate := graph.MuonRate(typ.Shape[0], typ.Shape[1])
		op = graph.SGD{WeightDecay: a.WeightDecay / rate, LRScale: rate}
		m.tol = Tolerance{Abs: 0x1p-15}
	case "adafactor":
		f := graph.Adafactor{Decay: 0.8, Eps: 1e-30, Clip: 1, WeightDecay: a.WeightDecay, LRScale: 1, Factored: len(typ.Shape) > 1}
		op, states = f, []graph.Type{typ}
		if f.Factored {
			rows, cols := graph.FactorTypes(typ)
			states = []graph.Type{rows, cols}
		}
		m.tol = Tolerance{Ulps: 64, Abs: 0x1p-20}
	default:
		codes, scales := graph.MomentTypes(typ)
		op, states = graph.AdamW8bit{Beta1: a.Beta1, Beta2: a.Beta2, Eps: a.Eps, WeightDecay: a.WeightDecay, LRScale: 1}, []graph.Type{codes, codes, scales, scales}
		m.tol, m.drawn = Tolerance{Abs: 0.05 * a.LR}, true
	}
	i := -1
	in := []*graph.Value{m.state("w", typ, func() float64 { i++; return m.data["in.w"][i] }), nil}
	for k, t := range states {
		in = append(in, m.state(fmt.Sprintf("state%d", k), t, func() float64 { return 0 }))
	}
	var momentum *graph.Value
	if m.Op == "muon" {
		momentum = m.state("momentum", typ, func() float64 { return 0 })
	}
	ga, gb, s, c := m.arg("a"), m.arg("b"), m.arg("s"), m.arg("c")
	one := m.Scalar(1)
	for u := range s.Shape()[0] {
		at := func(x *graph.Value) *graph.Value { return m.Reshape(m.Slice(x, 0, u, 1)) }
		in[1] = m.Add(m.Mul(ga, at(s)), m.Mul(gb, at(c)))
		scalars := []*graph.Value{m.Scalar(a.LR), one, m.Scalar(float64(u + 1)), one}
		if m.Op == "lion" || m.Op == "muon" {
			scalars = []*graph.Value{scalars[0], one, one}
		}
		if m.Op == "muon" {
			in[1], momentum = m.MuonStep(momentum, in[1], one, one, 0.95, typ.Shape)
		}
		y := m.Emit(op, slices.Concat(in, scalars)...)
		in[0] = y[0]
		copy(in[2:], y[1:])
		if u == 0 {
			m.out("first", m.Apply(graph.FnCopy, in[0]))
		}
	}
	m.out("last", in[0])
}
