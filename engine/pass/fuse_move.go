package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// noPressureBetween reports whether positions i and j are close, and the nodes between
// them, except those of c, write at most an eighth of the given bytes.
func (z *fuser) noPressureBetween(c *cluster, i, j int, bytes int64) bool {
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

// fuseUp makes n an instruction of c at the position of c, if the operands of n are defined
// there and computing it earlier takes no more memory than it frees.
func (z *fuser) fuseUp(c *cluster, n *graph.Node) bool {
	i := z.position.of(n)
	if !z.canFuseAt(c, n, c.at) {
		return false
	}
	takes := n.Out[0].Type.Bytes()
	if !z.noPressureBetween(c, c.at, i, takes) {
		for _, s := range operandsOf(n) {
			last := !z.pinned[s.ID] && !z.laterReader(s, func(j int) bool {
				return j != i && z.of[j] != c && (z.defines(c, s) || z.runsAt(j) > c.at)
			})
			if last {
				takes -= s.Type.Bytes()
			}
		}
		if takes > 0 {
			return false
		}
	}
	return z.tryFuse(c, c.at, n)
}

// fuseDown moves c down to position i and fuses it with nodes, or with the cluster into,
// if no other node reads its results before i, no state it reads is overwritten before i,
// and it keeps no more memory alive than it saves. The other nodes may read c.
func (z *fuser) fuseDown(c *cluster, i int, into *cluster, nodes ...*graph.Node) bool {
	if c.at > i || c.base != nil && len(c.base.Out) > 1 {
		return false
	}
	joins := func(j int) bool {
		return slices.Contains(nodes, z.f.Nodes[j]) || into != nil && z.of[j] == into
	}
	var takes int64
	results := z.results(c)
	for _, v := range results {
		for _, j := range z.readers.of(v.ID) {
			if z.of[j] != c && !joins(j) && z.runsAt(j) <= i {
				return false
			}
		}
		takes -= v.Type.Bytes()
	}
	for _, s := range operandsOf(c.members()...) {
		if z.defines(c, s) {
			continue
		}
		if int(z.overwritten[s.ID]) <= i {
			return false
		}
		if !z.pinned[s.ID] && !z.laterReader(s, func(j int) bool { return z.of[j] != c && z.runsAt(j) >= i }) {
			takes += s.Type.Bytes()
		}
	}
	if takes > 0 && !z.noPressureBetween(c, c.at, i, results[0].Type.Bytes()) {
		return false
	}
	if into != nil {
		return z.tryFuse(into, i, c.nodes...)
	}
	return z.tryFuse(c, i, nodes...)
}

// tryFuse makes the nodes instructions of c and puts c at position i, unless that makes
// the body illegal.
func (z *fuser) tryFuse(c *cluster, i int, nodes ...*graph.Node) bool {
	before, was := *c, make([]*cluster, len(nodes))
	c.at = i
	c.dims, _ = z.dimsWith(c, nodes...)
	c.nodes = slices.Concat(c.nodes, nodes)
	slices.SortFunc(c.nodes, func(a, b *graph.Node) int { return z.position.of(a) - z.position.of(b) })
	for k, n := range nodes {
		was[k], z.of[z.position.of(n)] = z.of[z.position.of(n)], c
	}
	if z.legalBody(c) {
		z.noteMoved(c)
		return true
	}
	*c = before
	for k, n := range nodes {
		z.of[z.position.of(n)] = was[k]
	}
	return false
}

// noteMoved records the values that c now reads later than its members did.
func (z *fuser) noteMoved(c *cluster) {
	for _, n := range c.members() {
		if z.position.of(n) >= c.at {
			continue
		}
		for _, s := range operandsOf(n) {
			if was := z.moved[s.ID]; len(was) == 0 || was[len(was)-1] != (moved{c, c.at}) {
				z.moved[s.ID] = append(was, moved{c, c.at})
			}
		}
	}
}

// laterReader reports whether a reader of v passes the test, which sees the last readers
// first.
func (z *fuser) laterReader(v *graph.Value, test func(j int) bool) bool {
	for _, j := range slices.Backward(z.readers.of(v.ID)) {
		if test(j) {
			return true
		}
	}
	return false
}
