package conformance

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

func (t *table) optimizer() {
	for _, decay := range []float64{0, 0.1} {
		for _, ok := range []float64{0, 1} {
			for _, zero := range []bool{false, true} {
				for _, dims := range [][]int{{1}, {7}, {5, 1031}} {
					for _, rounded := range []graph.DType{graph.Invalid, graph.F16, graph.BF16} {
						t.adamW(graph.AdamW{
							Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: decay, LRScale: 0.5, ZeroGrad: zero, Rounded: rounded,
						}, ok, dims)
					}
					t.sgd(graph.SGD{WeightDecay: decay, LRScale: 0.5, ZeroGrad: zero}, ok, dims)
					t.lion(graph.Lion{Beta1: 0.9, Beta2: 0.99, WeightDecay: decay, LRScale: 0.5, ZeroGrad: zero}, ok, dims)
					t.adamW8bit(graph.AdamW8bit{
						Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: decay, LRScale: 0.5, ZeroGrad: zero,
					}, ok, dims)
				}
			}
		}
	}
	for _, dims := range [][]int{{24, 40}, {41, 23}, {2, 9, 9}} {
		t.add(fmt.Sprintf("muon/%v", graph.Shape(dims)), Tolerance{Ulps: 256, Abs: 0x1p-13}, func(m *maker) {
			typ := graph.T(graph.F32, dims...)
			x, next := m.MuonStep(m.state("m", typ, m.rng.NormFloat64), m.normal("g", graph.F32, dims...), m.scalar("gscale", 0.25), m.scalar("ok", 1), 0.95, dims)
			m.outputs(x, next)
		})
	}
	t.add("muon/skipped", Tolerance{}, func(m *maker) {
		typ := graph.T(graph.F32, 3, 4)
		_, next := m.MuonStep(m.state("m", typ, m.rng.NormFloat64), m.normal("g", graph.F32, 3, 4), m.Apply(graph.FnRecip, m.scalar("zero", 0)), m.scalar("ok", 0), 0.95, typ.Shape)
		m.outputs(next)
	})
	for _, ok := range []float64{0, 1} {
		for _, zero := range []bool{false, true} {
			for _, dims := range [][]int{{1}, {1031}, {1, 9}, {40, 300}, {301, 40}, {3, 5, 1031}, {5, 7, 3, 3}} {
				op := graph.Adafactor{Decay: 0.8, Eps: 1e-30, Clip: 1, WeightDecay: 0.1, LRScale: 0.5, Factored: len(dims) > 1, ZeroGrad: zero}
				t.add(stepName("adafactor", dims, op.WeightDecay, ok, zero), Tolerance{Ulps: 64, Abs: 0x1p-21}, func(m *maker) { m.adafactor(op, dims, ok) })
			}
		}
	}
	t.roundings()
	t.accumulators()
	for _, d := range floats {
		for _, add := range []bool{false, true} {
			op := graph.Assign{Add: add}
			t.add(fmt.Sprintf("%s/%v", op.Name(), d), Tolerance{}, func(m *maker) {
				s := m.state("s", graph.T(graph.F32, 3, 347), m.rng.NormFloat64)
				m.outputs(m.Emit(op, s, m.normal("x", d, 3, 347))...)
			})
			t.add(fmt.Sprintf("%s/%v/twice", op.Name(), d), Tolerance{Ulps: 1, Terms: 1}, func(m *maker) {
				s := m.state("s", graph.T(graph.F32, 97), m.rng.NormFloat64)
				s = m.Emit(op, s, m.normal("x", d, 97))[0]
				m.outputs(m.Emit(op, s, m.normal("y", d, 97))...)
			})
		}
		t.add(fmt.Sprintf("assign/to_%v", d), Tolerance{}, func(m *maker) {
			m.outputs(m.Assign(m.state("s", graph.T(d, 97), m.rng.NormFloat64), m.normal("x", graph.F32, 97)))
		})
	}
	t.add("assign/scalar", Tolerance{}, func(m *maker) {
		m.outputs(m.Assign(m.state("s", graph.T(graph.F32), m.rng.NormFloat64), m.scalar("x", 3)))
	})
	t.add("global_norm/one", Tolerance{Ulps: 1}, func(m *maker) { m.outputs(m.GlobalNorm(m.normal("x", graph.F32, 1))) })
	t.add("global_norm/many", Tolerance{Ulps: 1}, func(m *maker) {
		large := m.input("large", graph.T(graph.F32, 1031), func() float64 { return 100 * m.rng.NormFloat64() })
		m.outputs(m.GlobalNorm(m.normal("x", graph.F32, 70, 300), large, m.normal("y", graph.F32)))
	})
	t.add("global_norm/infinite", Tolerance{}, func(m *maker) {
		m.outputs(m.GlobalNorm(m.normal("x", graph.F32, 5), m.Exp(m.scalar("big", 200))))
	})
}

// adamW makes two updates: the second works on the versions that the first wrote.
func (t *table) adamW(op graph.AdamW, ok float64, dims []int) {
	name, then := stepName("adamw", dims, op.WeightDecay, ok, op.ZeroGrad), 1.0
	if op.Rounded != graph.Invalid {
		name, then = name+"_and_"+op.Rounded.String(), ok // skipped twice, it keeps what it was
	}
	t.add(name, Tolerance{Ulps: 16, Abs: 0x1p-22}, func(m *maker) {
		typ := graph.T(graph.F32, dims...)
		square := func() float64 { x := m.rng.NormFloat64(); return x * x }
		w, g := m.state("w", typ, m.rng.NormFloat64), m.state("g", typ, m.rng.NormFloat64)
		mo, v := m.state("m", typ, m.rng.NormFloat64), m.state("v", typ, square)
		in := []*graph.Value{w, g, mo, v}
		if op.Rounded != graph.Invalid {
			in = append(in, m.state("rounded", typ.With(op.Rounded), m.rng.NormFloat64))
		}
		lr, scale := m.scalar("lr", 0.01), m.scalar("gscale", 0.25)
		y := m.Emit(op, append(slices.Clone(in), lr, scale, m.scalar("t", 3), m.scalar("ok", ok))...)
		n := 1 + op.States()
		in[0] = y[0]
		copy(in[2:], y[1:n])
		if op.ZeroGrad {
			in[1] = y[n]
		}
		m.outputs(m.Emit(op, append(in, lr, scale, m.scalar("t2", 4), m.scalar("ok2", then))...)...)
	})
}

// sgd makes two steps.
func (t *table) sgd(op graph.SGD, ok float64, dims []int) {
	t.add(stepName("sgd", dims, op.WeightDecay, ok, op.ZeroGrad), Tolerance{Ulps: 8, Abs: 0x1p-22}, func(m *maker) {
		typ := graph.T(graph.F32, dims...)
		w, g := m.state("w", typ, m.rng.NormFloat64), m.state("g", typ, m.rng.NormFloat64)
		lr, scale := m.scalar("lr", 0.01), m.scalar("gscale", 0.25)
		y := m.Emit(op, w, g, lr, scale, m.scalar("ok", ok))
		if op.ZeroGrad {
			g = y[1]
		}
		m.outputs(m.Emit(op, y[0], g, lr, scale, m.scalar("ok2", 1))...)
	})
}

// lion makes two steps. Gradients are large or zero, so that no rounding flips a sign.
func (t *table) lion(op graph.Lion, ok float64, dims []int) {
	t.add(stepName("lion", dims, op.WeightDecay, ok, op.ZeroGrad), Tolerance{Ulps: 8, Abs: 0x1p-22}, func(m *maker) {
		typ := graph.T(graph.F32, dims...)
		signs := func() float64 { return float64(m.rng.IntN(3)-1) * (1 + m.rng.Float64()) }
		w, g, mo := m.state("w", typ, m.rng.NormFloat64), m.state("g", typ, signs), m.state("m", typ, func() float64 { return 0.01 * m.rng.NormFloat64() })
		lr, scale := m.scalar("lr", 0.01), m.scalar("gscale", 0.25)
		y := m.Emit(op, w, g, mo, lr, scale, m.scalar("ok", ok))
		if op.ZeroGrad {
			g = y[2]
		}
		m.outputs(m.Emit(op, y[0], g, y[1], lr, scale, m.scalar("ok2", 1))...)
	})
}

// adamW8bit makes one step: another would start from codes that may differ by one.
func (t *table) adamW8bit(op graph.AdamW8bit, ok float64, dims []int) {
	t.add(stepName("adamw8bit", dims, op.WeightDecay, ok, op.ZeroGrad), Tolerance{Ulps: 16, Abs: 0x1p-22}, func(m *maker) {
		typ := graph.T(graph.F32, dims...)
		codes, scales := graph.MomentTypes(typ)
		code, size := func() float64 { return float64(m.rng.IntN(256)) }, func() float64 { return m.rng.Float64() + 0.1 }
		m.outputs(m.Emit(op, m.state("w", typ, m.rng.NormFloat64), m.state("g", typ, m.rng.NormFloat64),
			m.state("m", codes, code), m.state("v", codes, code), m.state("ms", scales, size), m.state("vs", scales, size),
			m.scalar("lr", 0.01), m.scalar("gscale", 0.25), m.scalar("t", 3), m.scalar("ok", ok))...)
	})
}

// adafactor makes two steps: the second's gradient is so much larger that it is bounded.
func (m *maker) adafactor(op graph.Adafactor, dims []int, ok float64) {
	typ := graph.T(graph.F32, dims...)
	square := func() float64 { return 1e-4 + m.rng.Float64() }
	in := []*graph.Value{m.state("w", typ, m.rng.NormFloat64), m.state("g", typ, func() float64 { return 4 * m.rng.NormFloat64() })}
	in = append(in, m.factors(op, typ, square)...)
	lr, scale := m.scalar("lr", 0.01), m.scalar("gscale", 0.25)
	y := m.Emit(op, append(slices.Clone(in), lr, scale, m.scalar("t", 3), m.scalar("ok", ok))...)
	n := 1 + op.States()
	in[0] = y[0]
	copy(in[2:], y[1:n])
	if op.ZeroGrad {
		in[1] = y[n]
	}
	m.outputs(m.Emit(op, append(in, lr, m.scalar("gscale2", 25), m.scalar("t2", 4), m.scalar("ok2", 1))...)...)
}

// factors are the states of adafactor.
func (m *maker) factors(op graph.Adafactor, w graph.Type, square func() float64) []*graph.Value {
	if !op.Factored {
		return []*graph.Value{m.state("v", w, square)}
	}
	rows, cols := graph.FactorTypes(w)
	return []*graph.Value{m.state("rows", rows, square), m.state("cols", cols, square)}
}

func stepName(name string, dims []int, decay, ok float64, zero bool) string {
	name = fmt.Sprintf("%s/%v/decay%v_ok%v", name, graph.Shape(dims), decay, ok)
	if zero {
		name += "_zero"
	}
	return name
}
