package pass

import (
	"cmp"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// fuse merges elementwise operations with each other, with the matmuls before them and
// with the column reductions after them, so that the values between them never go to
// memory. Every instruction of a fused body rounds as the separate operation did: no bit
// changes.
//
// The exponentials of a loss are taken where its logits are computed. Batch normalizations
// are taken apart first, so that what follows them need not read them.
//
// A cluster of nodes becomes one node at the position of one of them. That is legal if
// all its operands are defined there, no other node reads its results earlier, and no
// state it reads is overwritten before; and it must not keep more memory alive than its
// members did.
//
// Which nodes are near enough to fuse depends on the order. With recomputation the source
// order needs the values of the backward half before the rebuilt ones; the lazy order is
// tried too, and used if its peak is 2 % lower.
func fuse(u *Unit) error {
	can := u.fusion()
	recomputes := func(f *graph.Func) bool {
		return slices.ContainsFunc(f.Nodes, func(n *graph.Node) bool { return n.Clone })
	}
	if !recomputes(u.F) {
		f, err := fused(u.F, can)
		u.F = f
		return err
	}
	var source, lazy schedule
	var err, lazyErr error
	both(func() {
		source, err = fusedIn(u.F, can)
	}, func() {
		lazy, lazyErr = fusedIn(late(u.F), can)
	})
	if err := cmp.Or(err, lazyErr); err != nil {
		return err
	}
	u.schedule = source
	if recomputes(source.of) && lazy.peak < source.peak-source.peak/50 {
		u.schedule = lazy
	}
	u.F = u.schedule.of
	return nil
}

// fusedIn fuses f in its own order, and reorders the result.
func fusedIn(f *graph.Func, can Fusion) (schedule, error) {
	f, err := fused(f, can)
	if err != nil {
		return schedule{}, err
	}
	best, peak := reordered(f)
	return schedule{f, best, peak}, nil
}

// fused returns f with each cluster as one node.
func fused(f *graph.Func, can Fusion) (*graph.Func, error) {
	f, err := exponentials(f, can)
	if err != nil {
		return nil, err
	}
	if f, err = normalizations(f, can); err != nil {
		return nil, err
	}
	if f, err = pools(f, can); err != nil {
		return nil, err
	}
	if f, err = operands(f, can); err != nil {
		return nil, err
	}
	z := &fuser{newDefUse(f), can, make([]*cluster, len(f.Nodes)), make([][]moved, f.NumValues())}
	z.matmuls()
	z.loops()
	if can.LoopReductions {
		z.reductions()
	}
	instead := make([]func(*rebuilder), len(f.Nodes))
	for i, c := range z.of {
		switch {
		case c == nil || c.base == nil && len(c.nodes) == 1 && len(c.reductions) == 0:
		case c.at == i:
			instead[i] = func(r *rebuilder) { z.emit(r, c) }
		default:
			instead[i] = leaveOut
		}
	}
	return rebuild(f, instead)
}

// cluster is a set of nodes that become one node.
type cluster struct {
	// base is the matmul, or the gradient of a norm, that does the work of the
	// loop as its epilogue; nil for a loop on its own.
	base *graph.Node
	// nodes are the instructions of the loop, in order.
	nodes []*graph.Node
	// reductions are the column sums of what the loop computes or reads.
	reductions []*graph.Node
	// at is the position of the member that the fused node will replace.
	at       int
	dims     graph.Shape // of the results
	backward bool
}

// members are the nodes of c, the base first.
func (c *cluster) members() []*graph.Node {
	if c.base == nil {
		return c.nodes
	}
	return append([]*graph.Node{c.base}, c.nodes...)
}

// values are the results of the members of c, which its instructions may read.
func (c *cluster) values() []*graph.Value {
	var vs []*graph.Value
	if c.base != nil {
		vs = append(vs, c.base.Out[0])
	}
	for _, n := range c.nodes {
		vs = append(vs, n.Out[0])
	}
	return vs
}

// fuser assigns nodes to clusters.
type fuser struct {
	*defUse
	can Fusion
	of  []*cluster // by position of the node
	// moved are, by the ID of a value, the loops that read it at a later position
	// than their members did, in order of that position.
	moved [][]moved
}

// moved is a cluster that was moved down to a position.
type moved struct {
	c  *cluster
	to int
}

// runsAt is the position at which the node now at position i will run.
func (z *fuser) runsAt(i int) int {
	if c := z.of[i]; c != nil {
		return c.at
	}
	return i
}

// definedAt is the position after which the stored value v can be read.
func (z *fuser) definedAt(v *graph.Value) int {
	if v.Node == nil {
		return -1
	}
	return z.runsAt(z.position.of(v.Node))
}

// defines reports whether a member of c writes the stored value v.
func (z *fuser) defines(c *cluster, v *graph.Value) bool {
	return v.Node != nil && z.of[z.position.of(v.Node)] == c
}

// escapes reports whether the host or a node outside c reads v.
func (z *fuser) escapes(c *cluster, v *graph.Value) bool {
	return z.pinned[v.ID] || slices.ContainsFunc(z.readers.of(v.ID), func(i int) bool { return z.of[i] != c })
}

// results returns the values that c must store, the last one first: it may be stored in
// place of an operand.
func (z *fuser) results(c *cluster) []*graph.Value {
	vs := slices.DeleteFunc(c.values(), func(v *graph.Value) bool { return !z.escapes(c, v) })
	slices.Reverse(vs)
	return vs
}

// loop reports whether n can be an instruction of a body.
func loop(n *graph.Node) bool {
	switch n.Op.(type) {
	case graph.Elementwise, graph.Dropout, graph.Expand:
		return n.Out[0].DType().Float()
	}
	return false
}

// canFuseAt reports whether n can be an instruction of c at position at: both belong to
// the same half, and all operands of n are defined there, and c can run in a shape in which
// it reads them.
func (z *fuser) canFuseAt(c *cluster, n *graph.Node, at int) bool {
	if n.Backward != c.backward || slices.ContainsFunc(n.In, func(v *graph.Value) bool {
		s := graph.Storage(v)
		return !z.defines(c, s) && z.definedAt(s) >= at
	}) {
		return false
	}
	_, ok := z.dimsWith(c, n)
	return ok
}

// dimsWith is the shape in which c can run with more nodes: its own, or for a loop that of the
// last of them.
func (z *fuser) dimsWith(c *cluster, nodes ...*graph.Node) (graph.Shape, bool) {
	if canRead(c.dims, nodes) {
		return c.dims, true
	}
	dims := nodes[len(nodes)-1].Out[0].Shape()
	return dims, c.base == nil && canRead(dims, nodes) && canRead(dims, c.nodes)
}

// canRead reports whether a loop of shape dims can read all operands of the nodes, and computes
// as many elements.
func canRead(dims graph.Shape, nodes []*graph.Node) bool {
	return !slices.ContainsFunc(nodes, func(n *graph.Node) bool {
		return n.Out[0].Shape().Elems() != dims.Elems() || slices.ContainsFunc(n.In, func(v *graph.Value) bool {
			_, ok := operandShape(dims, n, v)
			return !ok
		})
	})
}

// operandShape is the shape in which a loop of shape dims reads the operand v of its instruction n.
func operandShape(dims graph.Shape, n *graph.Node, v *graph.Value) (graph.Shape, bool) {
	if counts(n, v) {
		return v.Shape(), true
	}
	return project(v.Shape(), n.Out[0].Shape(), dims)
}

// counts reports whether v is the run counter of the dropout n.
func counts(n *graph.Node, v *graph.Value) bool {
	_, drop := n.Op.(graph.Dropout)
	return drop && v == n.In[1]
}
