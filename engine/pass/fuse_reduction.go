package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// reductions fuses loops with the column sums of what they compute or read in full: the
// gradients of broadcast values, such as biases. A value that only such sums read never
// goes to memory.
func (z *fuser) reductions() {
	for _, n := range z.f.Nodes {
		op, ok := n.Op.(graph.Reduce)
		if !ok {
			continue
		}
		s := graph.Storage(n.In[0])
		near := slices.Clone(z.readers.of(s.ID))
		if s.Node != nil {
			near = append(near, z.position.of(s.Node))
		}
		for _, i := range near {
			if c := z.of[i]; c != nil && z.reduction(c, n, op) {
				break
			}
		}
	}
}

// reduction fuses c with the column sum n, unless a node before c reads the sum.
func (z *fuser) reduction(c *cluster, n *graph.Node, op graph.Reduce) bool {
	v := n.In[0]
	s := graph.Storage(v)
	outer, rows, cols, ok := op.Columns(v.Shape())
	if !ok || c.base != nil || n.Backward != c.backward || !v.Shape().Equal(c.dims) {
		return false
	}
	if len(c.reductions) > 0 {
		if o, r, k, _ := c.reductions[0].Op.(graph.Reduce).Columns(c.dims); o != outer || r != rows || k != cols {
			return false
		}
	}
	if !z.defines(c, s) && !slices.ContainsFunc(c.nodes, func(m *graph.Node) bool {
		return slices.ContainsFunc(m.In, func(w *graph.Value) bool {
			return graph.Storage(w) == s && w.Shape().Elems() == c.dims.Elems()
		})
	}) {
		return false
	}
	if slices.ContainsFunc(z.readers.of(n.Out[0].ID), func(i int) bool { return z.runsAt(i) <= c.at }) {
		return false
	}
	c.reductions, z.of[z.position.of(n)] = append(c.reductions, n), c
	if len(z.results(c)) > 0 && z.legalBody(c) {
		return true
	}
	c.reductions, z.of[z.position.of(n)] = c.reductions[:len(c.reductions)-1], nil
	return false
}
