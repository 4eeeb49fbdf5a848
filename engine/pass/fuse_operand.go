package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// operands fuses matmuls with other work on their operands, done as they are read, so
// that it needs no separate pass over memory: elementwise functions that compute the
// operands, and sums of the operands' columns.
func operands(f *graph.Func, can Fusion) (*graph.Func, error) {
	if !can.Operands && !can.OperandReductions {
		return f, nil
	}
	z := newDefUse(f)
	var maps map[int]*graph.Node
	if can.Operands {
		maps = z.operandFunctions()
	}
	var sums map[int]*graph.Node
	if can.OperandReductions {
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
			instead[z.position.of(sum)] = leaveOut
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

// operandFunctions returns the elementwise functions, by the ID of their result, that
// every reader of the result can apply to its operand instead. The argument stays in
// memory in any case; otherwise the function belongs in the epilogue of the node that
// writes the argument.
func (z *defUse) operandFunctions() map[int]*graph.Node {
	maps := map[int]*graph.Node{}
	for i, n := range z.f.Nodes {
		if e, ok := n.Op.(graph.Elementwise); ok && e.Fn.Arity() == 1 && n.Out[0].DType() == n.In[0].DType() && z.onlyMatmulsRead(i) && z.argumentStays(i) {
			maps[n.Out[0].ID] = n
		}
	}
	return maps
}

// columnSums returns the column sums, such as the gradient of a bias, by the position of
// a matmul that reads the same matrix transposed, as the gradient of a weight does,
// before any reader of the sum.
func (z *defUse) columnSums() map[int]*graph.Node {
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
		for _, i := range z.readers.of(s.ID) {
			m := z.f.Nodes[i]
			mm, ok := m.Op.(graph.MatMul)
			if ok && mm.TransA && graph.Storage(m.In[0]) == s && m.In[0].Shape().Equal(graph.Shape{rows, cols}) && m.Backward == n.Backward &&
				sums[i] == nil && !slices.ContainsFunc(z.readers.of(n.Out[0].ID), func(j int) bool { return j <= i }) {
				sums[i] = n
				break
			}
		}
	}
	return sums
}

// onlyMatmulsRead reports whether every reader of the result of the node at
// position i is a matmul that can apply a function to its operand instead.
func (z *defUse) onlyMatmulsRead(i int) bool {
	v := z.f.Nodes[i].Out[0]
	return !z.pinned[v.ID] && len(z.readers.of(v.ID)) > 0 && !slices.ContainsFunc(z.readers.of(v.ID), func(j int) bool {
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

// argumentStays reports whether the argument of the node at position i goes to
// memory and stays there for the readers of the result, because some reader cannot
// be fused with the node that writes it.
func (z *defUse) argumentStays(i int) bool {
	n := z.f.Nodes[i]
	x := graph.Storage(n.In[0])
	if int(z.overwritten[x.ID]) <= slices.Max(z.readers.of(n.Out[0].ID)) {
		return false
	}
	if x.Node == nil || z.pinned[x.ID] {
		return true
	}
	made := z.position.of(x.Node)
	return slices.ContainsFunc(z.readers.of(x.ID), func(j int) bool {
		m := z.f.Nodes[j]
		return j != i && (!loop(m) || m.Backward != x.Node.Backward || slices.ContainsFunc(operandsOf(m), func(s *graph.Value) bool {
			return s.Node != nil && z.position.of(s.Node) > made
		}))
	})
}
