package conformance

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// shapes are the operations that only move elements: exact in every type.
func (t *table) shapes() {
	for _, d := range append([]graph.DType{graph.I32}, floats...) {
		elems := func(m *maker, dims ...int) *graph.Value {
			if d == graph.I32 {
				return m.ints("x", -1000, 1000, dims...)
			}
			return m.normal("x", d, dims...)
		}
		add := func(name string, build func(m *maker) *graph.Value) {
			t.add(fmt.Sprintf("%s/%v", name, d), Tolerance{}, func(m *maker) { m.outputs(build(m)) })
		}
		add("reshape", func(m *maker) *graph.Value { return m.Reshape(elems(m, 6, 10), 4, -1) })
		for _, p := range []struct{ s, perm []int }{
			{[]int{37, 70}, []int{1, 0}},
			{[]int{3, 5, 18}, []int{1, 0, 2}},
			{[]int{3, 5, 18}, []int{0, 2, 1}},
			{[]int{3, 5, 18}, []int{2, 0, 1}},
			{[]int{2, 9, 4, 8}, []int{0, 2, 1, 3}},
			{[]int{2, 3, 4, 5}, []int{3, 1, 2, 0}},
			{[]int{7}, []int{0}},
		} {
			add(fmt.Sprintf("transpose/%v%v", p.s, p.perm), func(m *maker) *graph.Value { return m.Transpose(elems(m, p.s...), p.perm...) })
		}
		for _, s := range []graph.Slice{
			{Axis: 0, Start: 1, Len: 2, Step: 1}, {Axis: 0, Start: 0, Len: 2, Step: 2}, {Axis: 1, Start: 2, Len: 4, Step: 1},
			{Axis: 1, Start: 1, Len: 3, Step: 3}, {Axis: 2, Start: 0, Len: 9, Step: 1}, {Axis: 2, Start: 5, Len: 6, Step: 2},
		} {
			dims := []int{4, 9, 17}
			add(fmt.Sprintf("slice/%d_%d_%d_%d", s.Axis, s.Start, s.Len, s.Step), func(m *maker) *graph.Value {
				return m.SliceStep(elems(m, dims...), s.Axis, s.Start, s.Len, s.Step)
			})
			if d == graph.I32 {
				continue // the adjoint of ids does not exist
			}
			add(fmt.Sprintf("slice_grad/%d_%d_%d_%d", s.Axis, s.Start, s.Len, s.Step), func(m *maker) *graph.Value {
				part := graph.Shape(dims).Clone()
				part[s.Axis] = s.Len
				return m.Emit(graph.SliceGrad{Slice: s, Dim: dims[s.Axis]}, elems(m, part...))[0]
			})
			// Into a tensor that is read again, and into one that is not.
			add(fmt.Sprintf("slice_write/%d_%d_%d_%d", s.Axis, s.Start, s.Len, s.Step), func(m *maker) *graph.Value {
				x := elems(m, dims...)
				part := m.Neg(m.SliceStep(x, s.Axis, 0, s.Len, 1))
				y := m.Emit(graph.SliceWrite{Slice: s}, x, part)[0]
				return m.Emit(graph.SliceWrite{Slice: graph.Slice{Axis: 0, Start: 3, Len: 1, Step: 1}}, m.Add(y, x), m.Slice(y, 0, 0, 1))[0]
			})
		}
		for axis := range 3 {
			add(fmt.Sprintf("concat/%d", axis), func(m *maker) *graph.Value {
				x := elems(m, 3, 4, 9)
				return m.Concat(axis, x, m.Slice(x, axis, 1, 2), x)
			})
		}
	}
	for _, d := range floats {
		for _, s := range [][2]graph.Shape{
			{{}, {5, 3}}, {{67}, {3, 67}}, {{6, 1}, {6, 67}}, {{3, 1, 5}, {3, 4, 5}}, {{1, 4, 1}, {3, 4, 5}}, {{2, 1}, {3, 2, 1}},
		} {
			t.add(fmt.Sprintf("expand/%v/%v%v", d, s[0], s[1]), Tolerance{}, func(m *maker) {
				m.outputs(m.BroadcastTo(m.normal("x", d, s[0]...), s[1]...))
			})
		}
	}
	t.add("const", Tolerance{}, func(m *maker) { m.outputs(m.Scalar(-0.1)) })
}

func (t *table) reductions() {
	for kind := range graph.ReduceMax + 1 {
		for _, d := range floats {
			for axes := uint32(1); axes < 8; axes++ {
				t.reduce(graph.Reduce{Kind: kind, Axes: axes, Keep: axes%2 == 0}, d, 5, 3, 19)
			}
			t.reduce(graph.Reduce{Kind: kind, Axes: 1}, d, 300, 70)
			t.reduce(graph.Reduce{Kind: kind, Axes: 2}, d, 7, 5003)
			t.reduce(graph.Reduce{Kind: kind, Axes: 0b0101}, d, 2, 3, 4, 5)
			t.reduce(graph.Reduce{Kind: kind, Axes: 0b1010}, d, 2, 3, 4, 5)
		}
	}
}

func (t *table) reduce(op graph.Reduce, d graph.DType, dims ...int) {
	tol := Tolerance{Ulps: 1, Terms: op.Count(dims)}
	if op.Kind == graph.ReduceMax {
		tol = Tolerance{}
	}
	t.add(fmt.Sprintf("%s/%v/%v/%b", op.Name(), d, graph.Shape(dims), op.Axes), tol, func(m *maker) {
		m.outputs(m.Emit(op, m.normal("x", d, dims...))...)
	})
}
