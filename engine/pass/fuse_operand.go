package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// mapped lets products put their operands through functions as they read them,
// where all that reads the result of a function are products: an activation
// then never goes to memory, neither for the product behind it nor for the
// gradient of that product's weight. It is done where the argument stays in
// memory in any case; else the function belongs to what makes the argument.
func mapped(f *graph.Func) (*graph.Func, error) {
	z := newFlow(f)
	maps := make([]*graph.Node, f.NumValues()) // the function that makes a value, by ID
	for i, n := range f.Nodes {
		if e, ok := n.Op.(graph.Elementwise); ok && e.Fn.Arity() == 1 && n.Out[0].DType() == n.In[0].DType() && z.gone(i) && z.stays(i) {
			maps[n.Out[0].ID] = n
		}
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
		if from[0] == nil && from[1] == nil {
			continue
		}
		instead[i] = func(r *rebuilder) {
			in := slices.Clone(n.In)
			for k, v := range in {
				if k < 2 && from[k] != nil {
					in[k] = r.b.Reshape(r.value(graph.Storage(from[k].In[0])), v.Shape()...)
				} else {
					in[k] = r.value(v)
				}
			}
			r.replace(n.Out, r.b.Emit(op, in...))
		}
	}
	return rebuild(f, instead)
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
