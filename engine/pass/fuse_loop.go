package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// loops fuses the elementwise nodes that no matmul took over: each with the loop that
// writes one of its operands, else with a loop that reads the same operand.
func (z *fuser) loops() {
	for i, n := range z.f.Nodes {
		if z.of[i] != nil || !loop(n) {
			continue
		}
		makers, siblings := z.neighbors(n)
		joined := slices.ContainsFunc(makers, func(c *cluster) bool {
			return z.fuseUp(c, n) || z.canFuseAt(c, n, i) && z.fuseDown(c, i, nil, n)
		}) || slices.ContainsFunc(siblings, func(c *cluster) bool { return z.fuseUp(c, n) })
		if !joined {
			z.of[i] = &cluster{nodes: []*graph.Node{n}, at: i, dims: n.Out[0].Shape(), backward: n.Backward}
			continue
		}
		// The other loops that n reads may now join the same loop.
		c := z.of[i]
		for _, d := range makers {
			if d == c || d.backward != c.backward {
				continue
			}
			if _, ok := z.dimsWith(c, d.nodes...); ok {
				z.fuseDown(d, c.at, c)
			}
		}
	}
}

// neighbors returns the loops that write operands of n (makers), and those that read an
// operand of n of full size at a position where all operands are defined (siblings), the
// latest first.
func (z *fuser) neighbors(n *graph.Node) (makers, siblings []*cluster) {
	add := func(cs []*cluster, c *cluster) []*cluster {
		if c != nil && c.base == nil && !slices.Contains(cs, c) {
			cs = append(cs, c)
		}
		return cs
	}
	known := -1
	for _, v := range n.In {
		s := graph.Storage(v)
		known = max(known, z.definedAt(s))
		if s.Node != nil {
			makers = add(makers, z.of[z.position.of(s.Node)])
		}
	}
	for _, v := range n.In {
		s := graph.Storage(v)
		if s.Type.Shape.Elems() < n.Out[0].Shape().Elems() {
			continue
		}
		// A scalar may have a reader for each weight: look only at those that are late
		// enough.
		before, _ := slices.BinarySearch(z.readers.of(s.ID), z.position.of(n))
		for _, j := range slices.Backward(z.readers.of(s.ID)[:before]) {
			if j < known {
				break
			}
			if c := z.of[j]; c != nil && c.at >= known {
				siblings = add(siblings, c)
			}
		}
		for _, m := range slices.Backward(z.moved[s.ID]) {
			if m.to < known {
				break
			}
			if z.of[z.position.of(m.c.nodes[0])] == m.c { // otherwise it was fused into another loop
				siblings = add(siblings, m.c)
			}
		}
	}
	latest := func(a, b *cluster) int { return b.at - a.at }
	slices.SortStableFunc(makers, latest)
	slices.SortStableFunc(siblings, latest)
	return makers, siblings
}
