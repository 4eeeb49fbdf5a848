package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// fuse joins elementwise operations with each other and with the products
// before them, so that what lies between them never goes to memory. Every step
// of a fused body rounds as the operation of its own did: no bit changes.
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
	f, err := fused(u.F)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(f.Nodes, func(n *graph.Node) bool { return n.Clone }) {
		lazy, err := fused(late(u.F))
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
func fused(f *graph.Func) (*graph.Func, error) {
	z := &fuser{newFlow(f), make([]*cluster, len(f.Nodes))}
	z.products()
	z.loops()
	instead := make([]func(*rebuilder), len(f.Nodes))
	for i, c := range z.of {
		switch {
		case c == nil || c.base == nil && len(c.nodes) == 1:
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
	of []*cluster // by position
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

// project gives the shape in which a tensor of shape s, which broadcasts to
// shape from, is read along with tensors of shape to, which are those of shape
// from under another view. ok is false if there is none: s stretches along a
// dimension that the view joins with one along which it does not.
func project(s, from, to graph.Shape) (out graph.Shape, ok bool) {
	if s.Elems() == from.Elems() {
		return to, true
	}
	lead := len(from) - len(s)
	i, j := 0, 0
	for i < len(from) || j < len(to) {
		// The next group of dimensions that both shapes cut alike.
		i0, j0 := i, j
		a, b := 1, 1
		for i == i0 || j == j0 || a != b {
			if j == len(to) || i < len(from) && (a < b || i == i0) {
				if i == len(from) {
					break
				}
				a *= from[i]
				i++
			} else {
				b *= to[j]
				j++
			}
		}
		stretched, full := true, true
		for k := i0; k < i; k++ {
			own := 1
			if k >= lead {
				own = s[k-lead]
			}
			stretched = stretched && own == 1
			full = full && own == from[k]
		}
		switch {
		case full:
			out = append(out, to[j0:j]...)
		case stretched:
			for range j - j0 {
				out = append(out, 1)
			}
		default:
			return nil, false
		}
	}
	for len(out) > 0 && out[0] == 1 {
		out = out[1:]
	}
	return out, true
}

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
			if bytes -= 8 * v.Type.Bytes(); v.State == nil && bytes < 0 {
				return false
			}
		}
	}
	return true
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
			last := !z.pinned[s.ID] && !slices.ContainsFunc(z.readers[s.ID], func(j int) bool {
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
		if !z.pinned[s.ID] && !slices.ContainsFunc(z.readers[s.ID], func(j int) bool { return z.of[j] != c && z.place(j) >= i }) {
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
		return true
	}
	*c = before
	for k, n := range nodes {
		z.of[z.at[n]] = was[k]
	}
	return false
}

// sound reports whether the body of c is small enough for every device, and
// gives its results their shapes: what only stretched operands go into has none.
func (z *fuser) sound(c *cluster) bool {
	b, sources := z.body(c)
	if b.Inputs+len(b.Steps) > graph.MaxRegisters || len(b.Results) > graph.MaxBodyResults {
		return false
	}
	stretches := func(n *graph.Node) bool { _, ok := n.Op.(graph.Expand); return ok }
	if !slices.ContainsFunc(c.nodes, stretches) {
		return true
	}
	in := make([]graph.Type, len(sources))
	for i, s := range sources {
		in[i] = graph.Type{DType: s.seen.DType(), Shape: s.shape}
	}
	out, err := graph.Fused{Body: b}.Infer(in)
	return err == nil && !slices.ContainsFunc(out, func(t graph.Type) bool { return !t.Shape.Equal(c.dims) }) &&
		!slices.ContainsFunc(c.nodes, func(n *graph.Node) bool { _, ok := n.Op.(graph.Dropout); return ok })
}

// source is an operand of a body: a stored value, and the value and shape in
// which it is read.
type source struct {
	stored, seen *graph.Value
	shape        graph.Shape
}

// body is the program of c's loop, and what its inputs are; with a product as
// base, that is register 0 and not among the sources.
func (z *fuser) body(c *cluster) (*graph.Body, []source) {
	b := &graph.Body{}
	register := map[int]int{} // of what c makes, by ID
	if c.base != nil {
		register[c.base.Out[0].ID] = 0
		b.Inputs++
	}
	var sources []source
	first := b.Inputs
	find := func(n *graph.Node, v *graph.Value) int {
		s := graph.Storage(v)
		shape, _ := z.operandShape(c, n, v)
		k := slices.IndexFunc(sources, func(x source) bool { return x.stored == s && x.shape.Equal(shape) })
		if k < 0 {
			k = len(sources)
			sources = append(sources, source{s, v, shape})
		}
		return first + k
	}
	for _, n := range c.nodes {
		for _, v := range n.In {
			if !z.in(c, graph.Storage(v)) {
				find(n, v)
			}
		}
	}
	b.Inputs += len(sources)
	for _, n := range c.nodes {
		var arg []int
		for _, v := range n.In {
			if r, ok := register[graph.Storage(v).ID]; ok {
				arg = append(arg, r)
			} else {
				arg = append(arg, find(n, v))
			}
		}
		op, out := n.Op, n.Out[0]
		if _, ok := op.(graph.Expand); ok {
			// Reading stretches; only a result needs a step of its own.
			if !z.wanted(c, out) {
				register[out.ID] = arg[0]
				continue
			}
			op = graph.Elementwise{Fn: graph.FnCopy}
		}
		register[out.ID] = b.Inputs + len(b.Steps)
		b.Steps = append(b.Steps, graph.Step{Op: op, Arg: arg, DType: out.DType()})
	}
	for _, v := range z.results(c) {
		b.Results = append(b.Results, register[v.ID])
	}
	return b, sources
}

// inputs are the operands of a body in the shapes that it wants.
func (r *rebuilder) inputs(sources []source) []*graph.Value {
	vs := make([]*graph.Value, len(sources))
	for i, s := range sources {
		vs[i] = r.value(s.seen)
		if !vs[i].Shape().Equal(s.shape) {
			vs[i] = r.b.Reshape(r.value(s.stored), s.shape...)
		}
	}
	return vs
}

// emit emits the node that c becomes.
func (z *fuser) emit(r *rebuilder, c *cluster) {
	body, sources := z.body(c)
	results := z.results(c)
	in := r.inputs(sources)
	if c.base == nil {
		r.replace(results, r.b.Emit(graph.Fused{Body: body}, in...))
		return
	}
	in = slices.Concat(r.all(c.base.In), in)
	switch op := c.base.Op.(type) {
	case graph.MatMul:
		op.Body = body
		r.replace(results, r.b.Emit(op, in...))
	case graph.LayerNormGrad:
		// The sum takes the place of the gradient of x.
		out := r.b.Emit(op, in...)
		r.replace(results, out)
		r.replace(c.base.Out[1:], out[1:])
	}
}
