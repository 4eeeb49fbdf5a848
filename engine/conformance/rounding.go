package conformance

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// roundings are steps of weights in 16 bits.
func (t *table) roundings() {
	for _, r := range []struct {
		name string
		graph.Rounding
	}{
		{"exact", graph.Rounding{Seed: 1<<40 | 7, Stream: graph.WeightStream("w")}}, // only gradients in 16 bits: the others are in optimizer.go
		{"stochastic", graph.Rounding{Mode: graph.Stochastic, Seed: 1<<40 | 7, Stream: graph.WeightStream("w"), First: 1<<34 | 8}},
		{"compensated", graph.Rounding{Mode: graph.Compensated}},
	} {
		for _, ok := range []float64{0, 1} {
			for _, dims := range [][]int{{1}, {7}, {5, 1031}} {
				whole := r.Rounding
				whole.First = 0
				for _, op := range []graph.Optimizer{
					graph.AdamW{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, LRScale: 0.5, ZeroGrad: ok > 0, Round: r.Rounding},
					graph.AdamW8bit{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, LRScale: 0.5, ZeroGrad: ok > 0, Round: r.Rounding},
					graph.Lion{Beta1: 0.9, Beta2: 0.99, WeightDecay: 0.1, LRScale: 0.5, ZeroGrad: ok > 0, Round: r.Rounding},
					graph.Adafactor{Decay: 0.8, Eps: 1e-30, Clip: 1, WeightDecay: 0.1, LRScale: 0.5, Factored: len(dims) > 1, ZeroGrad: ok > 0, Round: whole},
					graph.SGD{WeightDecay: 0.1, LRScale: 0.5, ZeroGrad: ok > 0, Round: r.Rounding},
				} {
					t.narrowGradient(op, r.Mode, fmt.Sprintf("%s/%s/%v/ok%v_gradient", op.Name(), r.name, graph.Shape(dims), ok), dims, ok)
					if r.Mode == graph.Exact {
						continue
					}
					name := fmt.Sprintf("%s/%s/%v/ok%v", op.Name(), r.name, graph.Shape(dims), ok)
					// A result next to a rounding boundary may go the other way: a 16-bit
					// weight is then one unit off.
					t.add(name, Tolerance{Ulps: 0x1p16, Abs: 0x1p-18}, func(m *maker) {
						y := m.step(op, graph.F32, dims, ok)
						m.outputs(y[0])
					})
					if _, none := op.(graph.SGD); !none || ok > 0 { // it has results other than the weight
						t.add(name+"_states", Tolerance{Ulps: 16, Abs: 0x1p-22}, func(m *maker) {
							y, n := m.step(op, graph.F32, dims, ok), op.States()
							if r.Mode == graph.Compensated {
								m.outputs(append(y[1:n:n], y[n+1:]...)...)
								return
							}
							m.outputs(y[1:]...)
						})
					}
					if r.Mode == graph.Compensated { // what is kept compensates for what is not
						t.add(name+"_sum", Tolerance{Ulps: 0x1p7, Abs: 0x1p-20}, func(m *maker) {
							y := m.step(op, graph.F32, dims, ok)
							m.outputs(m.Add(m.Cast(y[0], graph.F32), m.Cast(y[op.States()], graph.F32)))
						})
					}
				}
			}
		}
		if r.Mode == graph.Exact {
			continue
		}
		// Steps that are powers of two are exact in float32, so every device must round
		// them alike: 1 + 2^-10 is an eighth of the way to the next number of 16 bits.
		op := graph.Lion{Beta1: 0.9, Beta2: 0.99, LRScale: 1, Round: r.Rounding}
		t.add("lion/"+r.name+"/exact", Tolerance{}, func(m *maker) {
			typ := graph.T(graph.F32, 3000)
			w := m.state("w", typ.With(graph.BF16), func() float64 { return 1 })
			in := []*graph.Value{w, m.state("g", typ, func() float64 { return -1 }), m.state("m", typ, func() float64 { return 0 })}
			in = append(in, m.rest(op.Round, typ)...)
			for k := range 3 {
				y := m.Emit(op, append(append([]*graph.Value{}, in...), m.scalars(op, 0x1p-10, 1, float64(5+k), 1)...)...)
				in[0], in[2] = y[0], y[1]
				if r.Mode == graph.Compensated {
					in[3] = y[2]
				}
			}
			m.outputs(append(in[:1:1], in[3:]...)...)
		})
	}
}

// narrowGradient is a step from a gradient in 16 bits.
func (t *table) narrowGradient(op graph.Optimizer, mode graph.RoundingMode, name string, dims []int, ok float64) {
	tolerance := Tolerance{Ulps: 64, Abs: 0x1p-21}
	if mode != graph.Exact {
		t.add(name, Tolerance{Ulps: 0x1p16, Abs: 0x1p-18}, func(m *maker) { m.outputs(m.step(op, graph.BF16, dims, ok)[0]) })
	}
	if _, none := op.(graph.SGD); none && ok == 0 && mode != graph.Exact {
		return // its only result is the weight
	}
	t.add(name+"_states", tolerance, func(m *maker) {
		y := m.step(op, graph.BF16, dims, ok)
		switch n := op.States(); mode {
		case graph.Exact:
			m.outputs(y...)
		case graph.Compensated:
			m.outputs(append(y[1:n:n], y[n+1:]...)...)
		default:
			m.outputs(y[1:]...)
		}
	})
}

// accumulators adds 16-bit states that are added to with stochastic rounding: for sums that
// are exact in float32, every device must give the same bits.
func (t *table) accumulators() {
	for _, d := range floats {
		for _, dims := range [][]int{{1}, {7}, {5, 1031}} {
			t.add(fmt.Sprintf("accumulate/random/%v/%v", d, graph.Shape(dims)), Tolerance{}, func(m *maker) {
				s := m.state("s", graph.T(graph.BF16, dims...), m.rng.NormFloat64)
				for k := range 3 {
					x := m.input(fmt.Sprint("x", k), graph.T(d, dims...), m.rng.NormFloat64)
					s = m.Emit(graph.Assign{Add: true, Round: graph.Rounding{Mode: graph.Stochastic, Seed: 1<<40 | 7, Stream: graph.WeightStream("s")}},
						s, x, m.given(graph.RunCounter, 41, 3))[0]
				}
				m.outputs(s)
			})
		}
	}
	t.add("assign/random", Tolerance{}, func(m *maker) {
		m.outputs(m.Emit(graph.Assign{Round: graph.Rounding{Mode: graph.Stochastic, Seed: 3, Stream: 1}},
			m.state("s", graph.T(graph.BF16, 3000), m.rng.NormFloat64), m.normal("x", graph.F32, 3000), m.given(graph.RunCounter, -5, 0))...)
	})
	t.add("accumulate/random/infinite", Tolerance{}, func(m *maker) {
		m.given(graph.RunCounter, 41, 3)
		m.outputs(m.AccumulateBF16(m.state("s", graph.T(graph.BF16, 9), m.rng.NormFloat64), m.Exp(m.input("x", graph.T(graph.F32, 9), func() float64 { return 200 })), 1, 2))
	})
	t.add("global_norm/formats", Tolerance{Ulps: 1}, func(m *maker) {
		m.outputs(m.GlobalNorm(m.normal("a", graph.BF16, 70, 1000), m.normal("b", graph.F32, 300), m.normal("c", graph.BF16, 1031), m.normal("d", graph.F32, 7, 11)))
	})
}

// rest returns the state that a rounding has.
func (m *maker) rest(r graph.Rounding, w graph.Type) []*graph.Value {
	if r.Mode != graph.Compensated {
		return nil
	}
	return []*graph.Value{m.state("rest", w.With(graph.BF16), func() float64 { return 0x1p-14 * math.Round(16*m.rng.NormFloat64()) })}
}

// scalars returns the scalars of a step.
func (m *maker) scalars(op graph.Optimizer, lr, scale, t, ok float64) []*graph.Value {
	s := []*graph.Value{m.scalar("lr", lr), m.scalar("gscale", scale)}
	counted := true
	switch op := op.(type) {
	case graph.Lion:
		counted = op.Round.Mode == graph.Stochastic
	case graph.SGD:
		counted = op.Round.Mode == graph.Stochastic
	}
	if counted {
		s = append(s, m.scalar(fmt.Sprint("t", t), t))
	}
	return append(s, m.scalar(fmt.Sprint("ok", t), ok)) // a distinct value, or steps of one weight would share a launch
}

// step makes a step of a weight in 16 bits, or with exact rounding in float32.
func (m *maker) step(op graph.Optimizer, gradient graph.DType, dims []int, ok float64) []*graph.Value {
	typ := graph.T(graph.F32, dims...)
	signs := func() float64 { return float64(m.rng.IntN(3)-1) * (1 + m.rng.Float64()) }
	var in []*graph.Value
	var r graph.Rounding
	weight := func(of graph.Rounding) {
		kept := typ
		if r = of; r.Mode != graph.Exact {
			kept = typ.With(graph.BF16)
		}
		in = append(in, m.state("w", kept, m.rng.NormFloat64), m.state("g", typ.With(gradient), signs))
	}
	switch op := op.(type) {
	case graph.AdamW:
		weight(op.Round)
		in = append(in, m.state("m", typ, m.rng.NormFloat64), m.state("v", typ, m.rng.Float64))
	case graph.AdamW8bit:
		weight(op.Round)
		codes, scales := graph.MomentTypes(typ)
		code, size := func() float64 { return float64(m.rng.IntN(256)) }, func() float64 { return m.rng.Float64() + 0.1 }
		in = append(in, m.state("m", codes, code), m.state("v", codes, code), m.state("ms", scales, size), m.state("vs", scales, size))
	case graph.Lion:
		weight(op.Round)
		in = append(in, m.state("m", typ, func() float64 { return 0.01 * m.rng.NormFloat64() }))
	case graph.SGD:
		weight(op.Round)
	case graph.Adafactor:
		weight(op.Round)
		in = append(in, m.factors(op, typ, func() float64 { return 0.1 + m.rng.Float64() })...)
	}
	in = append(in, m.rest(r, typ)...)
	return m.Emit(op, append(in, m.scalars(op, 0.01, 0.25, 3, ok)...)...)
}
