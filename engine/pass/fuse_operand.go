package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// operands gives products what else there is to do with their operands as they
// read them, so that it takes no way to memory and back of its own: functions that
// operands are the results of, and sums over their columns.
func operands(f *graph.Func, can Fusion) (*graph.Func, error) {
	if !can.Operands && !can.OperandSums {
		return f, nil
	}
	z := newFlow(f)
	var maps map[int]*graph.Node
	if can.Operands {
		maps = z.functions()
	}
	var sums map[int]*graph.Node
	if can.OperandSums {
		sums = z.columnSums()
	}
	instead := make([]func(*rebuilder), len(f.Nodes))
	for i, n := range f.Nodes {
		op, ok := n.Op.(graph.MatMul)
		if !ok {
			continue
		}
		var from [2]*graph.Node
		for k, e := range []*graph.Elementwise{&op.MapA, &op.MapB} {
			if from[k] = maps[graph.Storage(n.In[k]).ID]; from[k] != nil {
				*e = from[k].Op.(graph.Elementwise)
				e.Out = graph.Invalid
			}
		}
		out := n.Out
		if sum := sums[i]; sum != nil {
			op.SumA, out = true, append(slices.Clone(out), sum.Out[0])
			instead[z.at[sum]] = leaveOut
		}
		if from[0] == nil && from[1] == nil && !op.SumA {
			continue
		}
		instead[i] = func(r *rebuilder) {
			in := make([]*graph.Value, len(n.In))
			for k, v := range n.In {
				if k < 2 && from[k] != nil {
					in[k] = r.b.Reshape(r.value(graph.Storage(from[k].In[0])), v.Shape()...)
				} else {
					in[k] = r.value(v)
				}
			}
			r.replace(out, r.b.Emit(op, in...))
		}
	}
	return rebuild(f, instead)
}

// functions are those, by the ID of their result, that all who read that can
// put their operand through instead. The argument stays in memory in any case;
// else the function belongs to the epilogue of what makes the argument.
func (z *flow) functions() map[int]*graph.Node {
	maps := map[int]*graph.Node{}
	for i, n := range z.f.Nodes {
		if e, ok := n.Op.(graph.Elementwise); ok && e.Fn.Arity() == 1 && n.Out[0].DType() == n.In[0].DType() && z.gone(i) && z.stays(i) {
			maps[n.Out[0].ID] = n
		}
	}
	return maps
}

// columnSums are the sums over columns, such as the gradient of a bias, by the position
// of a product that reads the same matrix transposed, as the gradient of a weight
// does, before anybody needs the sum.
func (z *flow) columnSums() map[int]*graph.Node {
	sums := map[int]*graph.Node{}
	for _, n := range z.f.Nodes {
		op, ok := n.Op.(graph.Reduce)
		if !ok {
			continue
		}
		outer, rows, cols, ok := op.Columns(n.In[0].Shape())
		if !ok || outer != 1 {
			continue
		}
		s := graph.Storage(n.In[0])
		for _, i := range z.readers[s.ID] {
			m := z.f.Nodes[i]
			mm, ok := m.Op.(graph.MatMul)
			if ok && mm.TransA && graph.Storage(m.In[0]) == s && m.In[0].Shape().Equal(graph.Shape{rows, cols}) && m.Backward == n.Backward &&
				sums[i] == nil && !slices.ContainsFunc(z.readers[n.Out[0].ID], func(j int) bool { return j <= i }) {
				sums[i] = n
				break
			}
		}
	}
	return sums
}

// gone reports whether all that reads the result of the node at position i are
// products that can put it through a function instead.
func (z *flow) gone(i int) bool {
	v := z.f.Nodes[i].Out[0]
	return !z.pinned[v.ID] && len(z.readers[v.ID]) > 0 && !slices.ContainsFunc(z.readers[v.ID], func(j int) bool {
		n := z.f.Nodes[j]
		op, ok := n.Op.(graph.MatMul)
		if !ok || len(n.Out[0].Shape()) != 2 {
			return true
		}
		for k, w := range n.In {
			if graph.Storage(w) == v && (k > 1 || []bool{op.TransA, op.TransB}[k]) {
				return true
			}
		}
		return false
	})
}

// stays reports whether the argument of the node at position i goes to memory,
// and stays there for the readers of the result, since somebody reads it who
// cannot run where it is made.
func (z *flow) stays(i int) bool {
	n := z.f.Nodes[i]
	x := graph.Storage(n.In[0])
	if z.written[x.ID] <= slices.Max(z.readers[n.Out[0].ID]) {
		return false
	}
	if x.Node == nil || z.pinned[x.ID] {
		return true
	}
	made := z.at[x.Node]
	return slices.ContainsFunc(z.readers[x.ID], func(j int) bool {
		m := z.f.Nodes[j]
		return j != i && (!loop(m) || m.Backward != x.Node.Backward || slices.ContainsFunc(stored(m), func(s *graph.Value) bool {
			return s.Node != nil && z.at[s.Node] > made
		}))
	})
}
