package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// loops joins what elementwise work the products left: each node with the loop
// that makes an operand of it, else with a loop that reads the same operand.
func (z *fuser) loops() {
	for i, n := range z.f.Nodes {
		if z.of[i] != nil || !loop(n) {
			continue
		}
		makers, siblings := z.neighbours(n)
		joined := slices.ContainsFunc(makers, func(c *cluster) bool {
			return z.hoist(c, n) || z.admits(c, n, i) && z.sink(c, i, nil, n)
		}) || slices.ContainsFunc(siblings, func(c *cluster) bool { return z.hoist(c, n) })
		if !joined {
			z.of[i] = &cluster{nodes: []*graph.Node{n}, at: i, dims: n.Out[0].Shape(), backward: n.Backward}
			continue
		}
		// What else n reads may now join the same loop.
		c := z.of[i]
		for _, d := range makers {
			if d != c && d.backward == c.backward && z.readable(d, c) {
				z.sink(d, c.at, c)
			}
		}
	}
}

// neighbours are the loops that make operands of n, and those that read an
// operand of n of full size, the latest first.
func (z *fuser) neighbours(n *graph.Node) (makers, siblings []*cluster) {
	add := func(cs []*cluster, i int) []*cluster {
		if c := z.of[i]; c != nil && c.base == nil && !slices.Contains(cs, c) {
			cs = append(cs, c)
		}
		return cs
	}
	for _, v := range n.In {
		s := graph.Storage(v)
		if s.Node != nil {
			makers = add(makers, z.at[s.Node])
		}
		if s.Type.Shape.Elems() < n.Out[0].Shape().Elems() {
			continue
		}
		for _, j := range z.readers[s.ID] {
			if j < z.at[n] {
				siblings = add(siblings, j)
			}
		}
	}
	latest := func(a, b *cluster) int { return b.at - a.at }
	slices.SortStableFunc(makers, latest)
	slices.SortStableFunc(siblings, latest)
	return makers, siblings
}

// readable reports whether the steps of d can be steps of c.
func (z *fuser) readable(d, c *cluster) bool {
	if d.dims.Elems() != c.dims.Elems() {
		return false
	}
	for _, n := range d.nodes {
		for _, v := range n.In {
			if _, ok := z.operandShape(c, n, v); !ok {
				return false
			}
		}
	}
	return true
}
