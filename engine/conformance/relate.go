package conformance

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// relations adds the operations on pairs of positions, and those that stop gradients.
func (t *table) relations() {
	for _, s := range []graph.Shape{{1, 1, 1}, {2, 7, 5}, {3, 40, 33}, {1, 70, 300}} {
		typ := graph.Type{DType: graph.F32, Shape: s}
		operands := func(m *maker) []*graph.Value {
			return []*graph.Value{m.normal("p", typ.DType, s...), m.normal("q", typ.DType, s...), m.ints("segment", -1, 3, s[:2]...)}
		}
		for _, op := range []graph.Relate{{From: 0, To: 3}, {From: -1, To: 4}, {From: 2, To: 3}} {
			name := fmt.Sprintf("%v/%d_%d", s, op.From, op.To)
			t.add("relate/"+name, Tolerance{Ulps: 4, Terms: s[1]}, func(m *maker) {
				m.outputs(m.Emit(op, operands(m)...)...)
			})
			t.add("relate_grad/"+name, Tolerance{Ulps: 4, Terms: s[1]}, func(m *maker) {
				dy := m.normal("dy", typ.DType, s...)
				m.outputs(m.Emit(graph.RelateGrad(op), append([]*graph.Value{dy}, operands(m)...)...)...)
			})
		}
	}
	for _, d := range floats {
		t.add(fmt.Sprintf("detach/%v", d), Tolerance{}, func(m *maker) {
			m.outputs(m.Neg(m.Detach(m.normal("x", d, 3, 5))))
		})
	}
}
