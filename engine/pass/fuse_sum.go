package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// sums gives loops the sums over columns of what they make or read in full: the
// gradients of what was stretched, such as biases. What only sums read then
// never goes to memory.
func (z *fuser) sums() {
	for _, n := range z.f.Nodes {
		op, ok := n.Op.(graph.Reduce)
		if !ok {
			continue
		}
		s := graph.Storage(n.In[0])
		near := slices.Clone(z.readers[s.ID])
		if s.Node != nil {
			near = append(near, z.at[s.Node])
		}
		for _, i := range near {
			if c := z.of[i]; c != nil && z.sum(c, n, op) {
				break
			}
		}
	}
}

// sum gives c the sum n, unless somebody needs it before c stands.
func (z *fuser) sum(c *cluster, n *graph.Node, op graph.Reduce) bool {
	v := n.In[0]
	s := graph.Storage(v)
	outer, rows, cols, ok := op.Columns(v.Shape())
	if !ok || c.base != nil || n.Backward != c.backward || !v.Shape().Equal(c.dims) {
		return false
	}
	if len(c.sums) > 0 {
		if o, r, k, _ := c.sums[0].Op.(graph.Reduce).Columns(c.dims); o != outer || r != rows || k != cols {
			return false
		}
	}
	if !z.in(c, s) && !slices.ContainsFunc(c.nodes, func(m *graph.Node) bool {
		return slices.ContainsFunc(m.In, func(w *graph.Value) bool {
			return graph.Storage(w) == s && w.Shape().Elems() == c.dims.Elems()
		})
	}) {
		return false
	}
	if slices.ContainsFunc(z.readers[n.Out[0].ID], func(i int) bool { return z.place(i) <= c.at }) {
		return false
	}
	c.sums, z.of[z.at[n]] = append(c.sums, n), c
	if len(z.results(c)) > 0 && z.sound(c) {
		return true
	}
	c.sums, z.of[z.at[n]] = c.sums[:len(c.sums)-1], nil
	return false
}
