package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// fuse joins elementwise operations with each other, with the products before
// them and with the sums over columns behind them, so that what lies between
// them never goes to memory. Every step of a fused body rounds as the operation
// of its own did: no bit changes.
//
// A cluster of nodes becomes one node at the place of one of them. That is
// right when what it reads is known there and nobody else reads its results or
// overwrites a state it reads before; and it must not keep more memory alive
// than its members did.
//
// What is near enough to join depends on the order. With recomputation the
// writing order asks for the backward half's values before the rebuilt ones;
// the lazy order is tried too, and taken if its peak is lower by 2 %.
func fuse(u *Unit) error {
	can := FuseAll
	if u.Fusion != nil {
		can = *u.Fusion
	}
	f, err := fused(u.F, can)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(f.Nodes, func(n *graph.Node) bool { return n.Clone }) {
		lazy, err := fused(late(u.F), can)
		if err != nil {
			return err
		}
		_, p := reordered(f)
		if _, q := reordered(lazy); q < p-p/50 {
			f = lazy
		}
	}
	u.F = f
	return nil
}

// fused is f with all its clusters as nodes.
func fused(f *graph.Func, can Fusion) (*graph.Func, error) {
	f, err := operands(f, can)
	if err != nil {
		return nil, err
	}
	z := &fuser{newFlow(f), can, make([]*cluster, len(f.Nodes)), make([][]sunk, f.NumValues())}
	z.products()
	z.loops()
	if can.LoopSums {
		z.sums()
	}
	instead := make([]func(*rebuilder), len(f.Nodes))
	for i, c := range z.of {
		switch {
		case c == nil || c.base == nil && len(c.nodes) == 1 && len(c.sums) == 0:
		case c.at == i:
			instead[i] = func(r *rebuilder) { z.emit(r, c) }
		default:
			instead[i] = leaveOut
		}
	}
	return rebuild(f, instead)
}

// cluster is what becomes one node.
type cluster struct {
	// base is the product, or the gradient of a norm, that takes the loop's work
	// on; nil for a loop of its own.
	base *graph.Node
	// nodes are the steps of the loop, in order.
	nodes []*graph.Node
	// sums are the sums over columns of what the loop makes or reads.
	sums []*graph.Node
	// at is the position of the member in whose place the node will stand.
	at       int
	dims     graph.Shape // of the results
	backward bool
}

// made are the values of c that its steps may read.
func (c *cluster) made() []*graph.Value {
	var vs []*graph.Value
	if c.base != nil {
		vs = append(vs, c.base.Out[0])
	}
	for _, n := range c.nodes {
		vs = append(vs, n.Out[0])
	}
	return vs
}

// fuser knows which nodes go where.
type fuser struct {
	*flow
	can Fusion
	of  []*cluster // by position
	// sunk are, by the ID of a value, the loops that read it further down than
	// where it was written, in the order of where they went.
	sunk [][]sunk
}

// sunk says that c went down to a position.
type sunk struct {
	c  *cluster
	to int
}

// place is where the node now at position i will run.
func (z *fuser) place(i int) int {
	if c := z.of[i]; c != nil {
		return c.at
	}
	return i
}

// known is the position after which the stored value v can be read.
func (z *fuser) known(v *graph.Value) int {
	if v.Node == nil {
		return -1
	}
	return z.place(z.at[v.Node])
}

// in reports whether c makes the stored value v.
func (z *fuser) in(c *cluster, v *graph.Value) bool {
	return v.Node != nil && z.of[z.at[v.Node]] == c
}

// wanted reports whether the host or a node outside of c reads v.
func (z *fuser) wanted(c *cluster, v *graph.Value) bool {
	return z.pinned[v.ID] || slices.ContainsFunc(z.readers[v.ID], func(i int) bool { return z.of[i] != c })
}

// results are the values that c must store, the last one first: it is the one
// that may take an operand's place.
func (z *fuser) results(c *cluster) []*graph.Value {
	vs := slices.DeleteFunc(c.made(), func(v *graph.Value) bool { return !z.wanted(c, v) })
	slices.Reverse(vs)
	return vs
}

// loop reports whether n can be a step of a body.
func loop(n *graph.Node) bool {
	switch n.Op.(type) {
	case graph.Elementwise, graph.Dropout, graph.Expand:
		return n.Out[0].DType().Float()
	}
	return false
}

// admits reports whether n can be a step of c when c stands at position at.
func (z *fuser) admits(c *cluster, n *graph.Node, at int) bool {
	if n.Backward != c.backward || n.Out[0].Shape().Elems() != c.dims.Elems() {
		return false
	}
	for _, v := range n.In {
		s := graph.Storage(v)
		if z.in(c, s) {
			continue
		}
		if z.known(s) >= at {
			return false
		}
		if _, ok := z.operandShape(c, n, v); !ok {
			return false
		}
	}
	return true
}

// operandShape is the shape in which c reads the operand v of its member n.
func (z *fuser) operandShape(c *cluster, n *graph.Node, v *graph.Value) (graph.Shape, bool) {
	if counts(n, v) {
		return v.Shape(), true
	}
	return project(v.Shape(), n.Out[0].Shape(), c.dims)
}

// counts reports whether v is the run counter of the dropout n.
func counts(n *graph.Node, v *graph.Value) bool {
	_, drop := n.Op.(graph.Dropout)
	return drop && v == n.In[1]
}
