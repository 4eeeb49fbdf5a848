package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// quiet reports whether between positions i and j nothing runs that takes
// memory to speak of beside a value of the given size.
func (z *fuser) quiet(c *cluster, i, j int, bytes int64) bool {
	const far = 64
	if j-i > far {
		return false
	}
	for k := i + 1; k < j; k++ {
		n := z.f.Nodes[k]
		if z.of[k] == c || graph.IsView(n.Op) {
			continue
		}
		for _, v := range n.Out {
			if v.State == nil {
				bytes -= 8 * v.Type.Bytes()
			}
		}
	}
	return bytes >= 0
}

// hoist makes n a step of c where c stands, if what n reads is known there and
// computing it early takes no more memory than it frees.
func (z *fuser) hoist(c *cluster, n *graph.Node) bool {
	i := z.at[n]
	if !z.admits(c, n, c.at) {
		return false
	}
	takes := n.Out[0].Type.Bytes()
	if !z.quiet(c, c.at, i, takes) {
		for _, s := range stored(n) {
			last := !z.pinned[s.ID] && !z.laterReader(s, func(j int) bool {
				return j != i && z.of[j] != c && (z.in(c, s) || z.place(j) > c.at)
			})
			if last {
				takes -= s.Type.Bytes()
			}
		}
		if takes > 0 {
			return false
		}
	}
	return z.take(c, c.at, n)
}

// sink moves c down to position i, if nobody misses it before and that keeps
// no more memory alive than it saves, and makes the nodes its steps. What
// joins is allowed to read c.
func (z *fuser) sink(c *cluster, i int, into *cluster, nodes ...*graph.Node) bool {
	if c.base != nil || c.at > i {
		return false
	}
	joins := func(j int) bool {
		return slices.Contains(nodes, z.f.Nodes[j]) || into != nil && z.of[j] == into
	}
	var takes int64
	results := z.results(c)
	for _, v := range results {
		for _, j := range z.readers[v.ID] {
			if z.of[j] != c && !joins(j) && z.place(j) <= i {
				return false
			}
		}
		takes -= v.Type.Bytes()
	}
	for _, s := range stored(c.nodes...) {
		if z.in(c, s) {
			continue
		}
		if z.written[s.ID] <= i {
			return false
		}
		if !z.pinned[s.ID] && !z.laterReader(s, func(j int) bool { return z.of[j] != c && z.place(j) >= i }) {
			takes += s.Type.Bytes()
		}
	}
	if takes > 0 && !z.quiet(c, c.at, i, results[0].Type.Bytes()) {
		return false
	}
	if into != nil {
		return z.take(into, i, c.nodes...)
	}
	return z.take(c, i, nodes...)
}

// take makes the nodes steps of c and puts c at position i, unless its body
// would become too large.
func (z *fuser) take(c *cluster, i int, nodes ...*graph.Node) bool {
	before, was := *c, make([]*cluster, len(nodes))
	c.at = i
	c.nodes = slices.Concat(c.nodes, nodes)
	slices.SortFunc(c.nodes, func(a, b *graph.Node) int { return z.at[a] - z.at[b] })
	for k, n := range nodes {
		was[k], z.of[z.at[n]] = z.of[z.at[n]], c
	}
	if z.sound(c) {
		z.record(c)
		return true
	}
	*c = before
	for k, n := range nodes {
		z.of[z.at[n]] = was[k]
	}
	return false
}

// record notes which values c now reads further down than its members stood.
func (z *fuser) record(c *cluster) {
	for _, n := range c.nodes {
		if z.at[n] >= c.at {
			continue
		}
		for _, s := range stored(n) {
			if was := z.sunk[s.ID]; len(was) == 0 || was[len(was)-1] != (sunk{c, c.at}) {
				z.sunk[s.ID] = append(was, sunk{c, c.at})
			}
		}
	}
}

// laterReader reports whether a reader of v passes the test: the last ones are
// asked first.
func (z *fuser) laterReader(v *graph.Value, test func(j int) bool) bool {
	for _, j := range slices.Backward(z.readers[v.ID]) {
		if test(j) {
			return true
		}
	}
	return false
}
