package conformance

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// programs adds functions that test the placement of values rather than an operation:
// several names for one value, outputs that nothing computes, states that are read,
// written and read again.
func (t *table) programs() {
	x := func(m *maker) *graph.Value { return m.normal("x", graph.F32, 3, 5) }
	s := func(m *maker) *graph.Value { return m.state("s", graph.T(graph.F32, 3, 5), m.rng.NormFloat64) }
	add := func(name string, build func(m *maker)) { t.add("program/"+name, Tolerance{Ulps: 8, Terms: 15}, build) }

	add("output_twice", func(m *maker) {
		y := m.Neg(x(m))
		m.outputs(y, y)
	})
	add("output_and_view", func(m *maker) {
		y := m.Neg(x(m))
		m.outputs(y, m.Reshape(y, 15))
	})
	add("view_is_output", func(m *maker) { m.outputs(m.Reshape(m.Neg(x(m)), 15)) })
	add("two_views", func(m *maker) {
		y := m.Neg(x(m))
		m.outputs(m.Reshape(y, 15), m.Reshape(y, 5, 3), m.Square(y))
	})
	add("input_is_output", func(m *maker) { m.outputs(x(m)) })
	add("view_of_input_is_output", func(m *maker) { m.outputs(m.Reshape(x(m), 15)) })
	add("state_is_output", func(m *maker) { m.outputs(s(m)) })
	add("view_of_state_is_output", func(m *maker) { m.outputs(m.Reshape(s(m), 15)) })
	add("view_of_version_is_output", func(m *maker) { m.outputs(m.Reshape(m.Accumulate(s(m), x(m)), 15)) })
	add("old_version", func(m *maker) { // values computed before the write keep the old elements
		was := s(m)
		twice := m.MulC(was, 2)
		now := m.Assign(was, x(m))
		m.outputs(twice, now, m.Sub(twice, now))
	})
	add("copy_before_write", func(m *maker) {
		was := s(m)
		copied := m.Apply(graph.FnCopy, was)
		m.outputs(copied, m.Assign(was, x(m)))
	})
	add("view_before_write", func(m *maker) {
		was := s(m)
		sum := m.Sum(m.Reshape(was, 15))
		m.outputs(sum, m.Assign(was, x(m)))
	})
	add("swap", func(m *maker) { // each state takes the other's old elements
		a := s(m)
		b := m.state("b", graph.T(graph.F32, 3, 5), m.rng.NormFloat64)
		hold := m.Apply(graph.FnCopy, a)
		m.outputs(m.Assign(a, b), m.Assign(b, hold))
	})
	add("long_lived", func(m *maker) { // the first value is needed after many others have come and gone
		first := m.Neg(x(m))
		y := first
		for range 20 {
			y = m.Tanh(m.MulC(y, 1.5))
		}
		m.outputs(m.Mul(first, m.Apply(graph.FnPositive, y)))
	})
	add("same_operand", func(m *maker) {
		v := m.Exp(x(m))
		m.outputs(m.Sub(v, v), m.Div(v, v))
	})
	add("unused", func(m *maker) {
		v := x(m)
		m.Exp(v) // it is not read
		m.outputs(m.Neg(v))
	})
	for _, d := range floats {
		t.add(fmt.Sprintf("program/mixed_%v", d), Tolerance{Ulps: 4, Inner: 2, InnerDType: d}, func(m *maker) {
			h := m.Cast(x(m), d)
			h = m.Add(m.Cast(m.Square(h), d), h)
			m.outputs(h, m.Sum(h, -1), m.Cast(h, graph.F32))
		})
	}
}
