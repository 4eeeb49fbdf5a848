package conformance

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

func (t *table) norms() {
	shapes := []graph.Shape{{1}, {5}, {4, 10}, {2, 3, 33}, {3, 1, 768}, {2, 1100}, {7, 2050}, {3, 2052}}
	for _, d := range floats {
		for _, s := range shapes {
			for _, rms := range []bool{false, true} {
				t.layerNorm(graph.LayerNorm{Eps: 1e-5, RMS: rms}, d, s)
			}
		}
	}
	for _, s := range shapes { // softmax takes no part in mixed precision
		typ := graph.Type{DType: graph.F32, Shape: s}
		t.add(fmt.Sprintf("softmax/%v", s), Tolerance{Ulps: 8, Terms: s.Last()}, func(m *maker) {
			m.outputs(m.Softmax(m.input("x", typ, func() float64 { return 5 * m.rng.NormFloat64() })))
		})
		t.add(fmt.Sprintf("softmax_grad/%v", s), Tolerance{Ulps: 4, Terms: s.Last()}, func(m *maker) {
			y := m.input("y", typ, m.rng.Float64)
			m.outputs(m.Emit(graph.SoftmaxGrad{}, y, m.normal("dy", graph.F32, s...))...)
		})
	}
	// A mean far from zero: only the deviations count.
	t.add("layer_norm/offset", Tolerance{Ulps: 4, Terms: 64, Abs: 2e-5}, func(m *maker) {
		x := m.input("x", graph.T(graph.F32, 3, 64), func() float64 { return 100 + m.rng.NormFloat64() })
		m.outputs(m.LayerNorm(x, m.normal("gamma", graph.F32, 64), m.normal("beta", graph.F32, 64), 1e-12))
	})
}

func (t *table) layerNorm(op graph.LayerNorm, d graph.DType, s graph.Shape) {
	name := fmt.Sprintf("%s/%v/%v", op.Name(), d, s)
	width := s.Last()
	tol := Tolerance{Ulps: 4, Terms: width}
	t.add(name, tol, func(m *maker) {
		in := []*graph.Value{m.normal("x", d, s...), m.normal("gamma", graph.F32, width)}
		if !op.RMS {
			in = append(in, m.normal("beta", graph.F32, width))
		}
		m.outputs(m.Emit(op, in...)...)
	})
	tol.Terms += s.Rows()
	gradient := func(m *maker) []*graph.Value {
		x, gamma := m.normal("x", d, s...), m.normal("gamma", graph.F32, width)
		stats := graph.Type{DType: graph.F32, Shape: s[:len(s)-1]}
		mean := m.input("mean", stats, func() float64 {
			if op.RMS {
				return 0
			}
			return 0.1 * m.rng.NormFloat64()
		})
		rstd := m.input("rstd", stats, func() float64 { return 0.5 + m.rng.Float64() })
		return []*graph.Value{m.normal("dy", d, s...), x, gamma, mean, rstd}
	}
	name = graph.LayerNormGrad(op).Name() + name[len(op.Name()):]
	t.add(name, tol, func(m *maker) { m.outputs(m.Emit(graph.LayerNormGrad(op), gradient(m)...)...) })
	// Adding to dx gives the same bits as a separate addition.
	tol.Inner, tol.InnerDType = 2, d
	t.pair(name+"_added", tol, func(m *maker) {
		m.outputs(m.Emit(graph.LayerNormGrad(op), append(gradient(m), m.normal("around", d, s...))...)...)
	}, func(m *maker) {
		g := m.Emit(graph.LayerNormGrad(op), gradient(m)...)
		m.outputs(append([]*graph.Value{m.Add(g[0], m.normal("around", d, s...))}, g[1:]...)...)
	})
}
