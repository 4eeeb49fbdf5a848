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
// operand of n of full size and stand where all operands are known, the latest
// first.
func (z *fuser) neighbours(n *graph.Node) (makers, siblings []*cluster) {
	add := func(cs []*cluster, c *cluster) []*cluster {
		if c != nil && c.base == nil && !slices.Contains(cs, c) {
			cs = append(cs, c)
		}
		return cs
	}
	known := -1
	for _, v := range n.In {
		s := graph.Storage(v)
		known = max(known, z.known(s))
		if s.Node != nil {
			makers = add(makers, z.of[z.at[s.Node]])
		}
	}
	for _, v := range n.In {
		s := graph.Storage(v)
		if s.Type.Shape.Elems() < n.Out[0].Shape().Elems() {
			continue
		}
		// A scalar may have a reader for each weight: only those are looked at
		// that can be late enough.
		before, _ := slices.BinarySearch(z.readers[s.ID], z.at[n])
		for _, j := range slices.Backward(z.readers[s.ID][:before]) {
			if j < known {
				break
			}
			if c := z.of[j]; c != nil && c.at >= known {
				siblings = add(siblings, c)
			}
		}
		for _, m := range slices.Backward(z.sunk[s.ID]) {
			if m.to < known {
				break
			}
			if z.of[z.at[m.c.nodes[0]]] == m.c { // else it went into another loop
				siblings = add(siblings, m.c)
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
