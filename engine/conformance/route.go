package conformance

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// choices are the operations that pick elements by rank or index.
func (t *table) choices() {
	for _, d := range floats {
		for _, s := range []graph.Shape{{1}, {7}, {5, 4}, {3, 2, 33}, {2, 1500}} {
			n := s.Last()
			index := func(m *maker, k int) *graph.Value {
				dims := s.Clone()
				dims[len(dims)-1] = k
				return m.ints("index", 0, n-1, dims...)
			}
			for _, k := range slices.Compact([]int{1, min(3, n), n}) {
				t.add(fmt.Sprintf("top_k/%v/%v/%d", d, s, k), Tolerance{}, func(m *maker) {
					// Few distinct elements: ties are common.
					x := m.input("x", graph.Type{DType: d, Shape: s}, func() float64 { return float64(m.rng.IntN(40)) / 4 })
					m.outputs(m.Emit(graph.TopK{K: k}, x)...)
				})
			}
			t.add(fmt.Sprintf("gather/%v/%v", d, s), Tolerance{}, func(m *maker) {
				m.outputs(m.Gather(m.normal("x", d, s...), index(m, 5)))
			})
			t.add(fmt.Sprintf("scatter/%v/%v", d, s), Tolerance{Ulps: 1, Terms: 5}, func(m *maker) {
				at := index(m, 5)
				m.outputs(m.Scatter(m.normal("x", d, at.Shape()...), at, n))
			})
			t.add(fmt.Sprintf("arg_max/%v/%v", d, s), Tolerance{}, func(m *maker) {
				x := m.input("x", graph.Type{DType: d, Shape: s}, func() float64 { return float64(m.rng.IntN(40)) })
				m.outputs(m.ArgMax(x))
			})
		}
	}
	t.add("one_hot", Tolerance{}, func(m *maker) { m.outputs(m.OneHot(m.ints("index", -1, 7, 3, 9), 7)) })
	t.add("top_k/all_equal", Tolerance{}, func(m *maker) {
		x := m.input("x", graph.T(graph.F32, 3, 40), func() float64 { return 2 })
		m.outputs(m.Emit(graph.TopK{K: 4}, x)...)
	})
}

// experts are the operations of a mixture of experts.
func (t *table) experts() {
	for _, s := range []struct{ n, k, experts, capacity int }{
		{1, 1, 1, 0}, {9, 1, 4, 0}, {9, 2, 4, 0}, {9, 2, 4, 3}, {300, 2, 5, 0}, {300, 1, 3, 70}, {40, 3, 50, 1},
	} {
		name := fmt.Sprintf("n%d_k%d_e%d_c%d", s.n, s.k, s.experts, s.capacity)
		route := func(m *maker) graph.Routing {
			op := graph.Route{Experts: s.experts, Capacity: s.capacity}
			return m.Route(op, m.ints("choice", 0, s.experts-1, s.n, s.k))
		}
		t.add("moe_route/"+name, Tolerance{}, func(m *maker) {
			r := route(m)
			m.outputs(r.Slot, r.Source, r.Offsets, r.Wanted)
		})
		for _, d := range floats {
			t.routed(fmt.Sprintf("%v/%s", d, name), d, s.n, s.k, s.experts, route)
		}
	}
	t.add("moe_route/one_takes_all", Tolerance{}, func(m *maker) {
		choice := m.input("choice", graph.T(graph.I32, 8, 1), func() float64 { return 2 })
		r := m.Route(graph.Route{Experts: 4, Capacity: 5}, choice)
		m.outputs(r.Slot, r.Source, r.Offsets, r.Wanted)
	})
}

func (t *table) routed(name string, d graph.DType, n, k, experts int, route func(m *maker) graph.Routing) {
	const width, inner = 37, 21
	for _, weighted := range []bool{false, true} {
		in := func(m *maker, x *graph.Value, r graph.Routing) []*graph.Value {
			in := []*graph.Value{x, r.Slot, r.Source}
			if weighted {
				in = append(in, m.normal("weights", graph.F32, n, k))
			}
			return in
		}
		t.add(fmt.Sprintf("moe_dispatch/%s/%v", name, weighted), Tolerance{Ulps: 1}, func(m *maker) {
			m.outputs(m.Emit(graph.Dispatch{Weighted: weighted}, in(m, m.normal("x", d, n, width), route(m))...)...)
		})
		t.add(fmt.Sprintf("moe_combine/%s/%v", name, weighted), Tolerance{Ulps: 1, Terms: k}, func(m *maker) {
			r := route(m)
			y := m.normal("y", d, r.Source.Shape()[0], width)
			m.outputs(m.Emit(graph.Combine{Weighted: weighted}, in(m, y, r)...)...)
		})
	}
	rows := func(m *maker, r graph.Routing, name string, width int) *graph.Value {
		return m.normal(name, d, r.Source.Shape()[0], width)
	}
	t.add("moe_dot/"+name, Tolerance{Ulps: 1, Terms: width}, func(m *maker) {
		r := route(m)
		m.outputs(m.Emit(graph.RoutedDot{}, m.normal("x", d, n, width), rows(m, r, "y", width), r.Slot)...)
	})
	t.add("grouped_matmul/"+name, Tolerance{Ulps: 1, Terms: inner}, func(m *maker) {
		r := route(m)
		m.outputs(m.Emit(graph.GroupedMatMul{}, rows(m, r, "x", inner), m.normal("w", d, experts, inner, width), r.Offsets)...)
	})
	t.add("grouped_linear/"+name, Tolerance{Ulps: 1, Terms: inner}, func(m *maker) {
		r := route(m)
		m.outputs(m.GroupedLinear(rows(m, r, "x", inner), m.normal("w", d, experts, width, inner), m.normal("bias", graph.F32, experts, width), r))
	})
	if d == graph.F32 { // stored in another format
		t.add("grouped_linear/bf16_"+name, Tolerance{Ulps: 1, Terms: inner}, func(m *maker) {
			r := route(m)
			m.outputs(m.GroupedLinear(rows(m, r, "x", inner), m.normal("w", graph.BF16, experts, width, inner), m.normal("bias", graph.F32, experts, width), r))
		})
	}
	if experts > 2 { // neither the first nor the last expert
		t.add("grouped_linear/part/"+name, Tolerance{Ulps: 1, Terms: inner}, func(m *maker) {
			r := route(m)
			part := graph.Routing{Offsets: m.Slice(r.Offsets, 0, 1, experts-1)}
			m.outputs(m.GroupedLinear(rows(m, r, "x", inner), m.normal("w", d, experts-2, width, inner), m.normal("bias", graph.F32, experts-2, width), part))
		})
	}
	t.add("grouped_outer/"+name, Tolerance{Ulps: 1, Terms: n}, func(m *maker) {
		r := route(m)
		m.outputs(m.Emit(graph.GroupedOuter{}, rows(m, r, "a", width), rows(m, r, "b", inner), r.Offsets)...)
	})
	for _, s := range []struct{ in, out int }{{inner, 2}, {2, width}} { // the factors of an adapter
		narrow := fmt.Sprintf("narrow_%dx%d/%s", s.in, s.out, name)
		t.add("grouped_linear/"+narrow, Tolerance{Ulps: 1, Terms: s.in}, func(m *maker) {
			r := route(m)
			m.outputs(m.GroupedLinear(rows(m, r, "x", s.in), m.normal("w", d, experts, s.out, s.in), nil, r))
		})
		t.add("grouped_matmul/"+narrow, Tolerance{Ulps: 1, Terms: s.in}, func(m *maker) {
			r := route(m)
			m.outputs(m.Emit(graph.GroupedMatMul{}, rows(m, r, "x", s.in), m.normal("w", d, experts, s.in, s.out), r.Offsets)...)
		})
		t.add("grouped_outer/"+narrow, Tolerance{Ulps: 1, Terms: n}, func(m *maker) {
			r := route(m)
			m.outputs(m.Emit(graph.GroupedOuter{}, rows(m, r, "a", s.out), rows(m, r, "b", s.in), r.Offsets)...)
		})
	}
	t.add("grouped_sum/"+name, Tolerance{Ulps: 1, Terms: n}, func(m *maker) {
		r := route(m)
		m.outputs(m.Emit(graph.GroupedSum{}, rows(m, r, "x", width), r.Offsets)...)
	})
}

func (t *table) scans() {
	for _, s := range []struct{ n, t, d, states, chunk int }{
		{1, 1, 1, 1, 1}, {2, 7, 5, 3, 3}, {1, 33, 70, 16, 16}, {2, 16, 130, 4, 16}, {1, 5, 3, 2, 9},
	} {
		name := fmt.Sprintf("n%d_t%d_d%d_s%d_c%d", s.n, s.t, s.d, s.states, s.chunk)
		in := func(m *maker) []*graph.Value {
			x := func(name string, gen func() float64, dims ...int) *graph.Value {
				return m.input(name, graph.T(graph.F32, dims...), gen)
			}
			step := func() float64 { return 0.5 * m.rng.Float64() }
			return []*graph.Value{
				x("u", m.rng.NormFloat64, s.n, s.t, s.d), x("dt", step, s.n, s.t, s.d),
				x("A", func() float64 { return -2 * m.rng.Float64() }, s.d, s.states),
				x("B", m.rng.NormFloat64, s.n, s.t, s.states), x("C", m.rng.NormFloat64, s.n, s.t, s.states), x("D", m.rng.NormFloat64, s.d),
			}
		}
		op := graph.SelectiveScan{Chunk: s.chunk}
		t.add("selective_scan/"+name, Tolerance{Ulps: 8, Terms: s.t + s.states}, func(m *maker) { m.outputs(m.Emit(op, in(m)...)...) })
		t.add("selective_scan_grad/"+name, Tolerance{Ulps: 16, Terms: s.t * (s.states + s.d)}, func(m *maker) {
			operands := in(m)
			kept := m.Emit(op, operands...)[1]
			m.outputs(m.Emit(graph.SelectiveScanGrad(op), append([]*graph.Value{m.normal("dy", graph.F32, s.n, s.t, s.d), kept}, operands...)...)...)
		})
	}
}
