package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// pools lets pools do elementwise work on images as they read them, where nothing else needs its
// result, which then never goes to memory. The gradient of a pool does it again.
func pools(f *graph.Func, can Fusion) (*graph.Func, error) {
	if !can.Pools || !slices.ContainsFunc(f.Nodes, func(n *graph.Node) bool { return pooled(n) != nil }) {
		return f, nil
	}
	z := newDefUse(f)
	return replaced(f, func(i int, n *graph.Node) func(*rebuilder) {
		x := pooled(n)
		if x == nil || !z.onlyPoolsRead(x) {
			return nil
		}
		body, sources := z.images(x, can)
		if body == nil || slices.ContainsFunc(sources, func(s source) bool { return int(z.overwritten[s.stored.ID]) <= i }) {
			return nil
		}
		return func(r *rebuilder) {
			in := r.inputs(sources)
			switch op := n.Op.(type) {
			case graph.Pool2D:
				op.Body = body
				r.replace(n.Out, r.b.Emit(op, in...))
			case graph.Pool2DGrad:
				op.Pool.Body = body
				r.replace(n.Out, r.b.Emit(op, slices.Concat(r.all(n.In[:1]), in, r.all(n.In[2:]))...))
			}
		}
	})
}

// pooled returns the images that n takes maxima of, or whose gradient it is, where windows divide
// them between them; nil: n is no such pool.
func pooled(n *graph.Node) *graph.Value {
	var pool graph.Pool2D
	var x *graph.Value
	switch op := n.Op.(type) {
	case graph.Pool2D:
		pool, x = op, n.In[0]
	case graph.Pool2DGrad:
		if op.Pool.Kind == graph.PoolAverage {
			return nil
		}
		pool, x = op.Pool, n.In[1]
	default:
		return nil
	}
	if s := x.Shape(); pool.Kind != graph.PoolMax || pool.Body != nil || !pool.Divides(s[1], s[2]) {
		return nil
	}
	return x
}

// onlyPoolsRead reports whether every reader of x takes maxima of it, or is their gradient.
func (z *defUse) onlyPoolsRead(x *graph.Value) bool {
	s := graph.Storage(x)
	return !z.pinned[s.ID] && !slices.ContainsFunc(z.readers.of(s.ID), func(i int) bool {
		of := pooled(z.f.Nodes[i])
		return of == nil || graph.Storage(of) != s
	})
}

// images returns the elementwise work that makes the images x, with its operands: one of their size,
// of no more bytes, and others that stretch. The body is nil where there is no such work.
func (z *defUse) images(x *graph.Value, can Fusion) (*graph.Body, []source) {
	nodes, fine := z.makers(x)
	if len(nodes) == 0 {
		return nil, nil
	}
	// Dimensions that operands may stretch along: those of an image, and parts of their number.
	dims := x.Shape()
	for k := range fine {
		if k > 0 && fine[k:].Elems() == dims[1:].Elems() {
			dims = slices.Concat(fine[:k], dims[1:])
			break
		}
	}
	body, sources, ok := bodyOf(nodes, dims)
	whole := 0
	for _, s := range sources {
		if s.shape.Elems() == dims.Elems() {
			whole++
			ok = ok && s.stored.Type.Bytes() <= graph.Storage(x).Type.Bytes()
		}
	}
	if !ok || whole != 1 || body.Inputs+len(body.Instrs) > can.Registers {
		return nil, nil
	}
	return body, sources
}

// makers returns the elementwise nodes that make x of what is stored in any case, in order, and the shape that refines all
// of theirs; none where there is no such shape.
func (z *defUse) makers(x *graph.Value) (nodes []*graph.Node, fine graph.Shape) {
	fine = x.Shape()
	seen, ok := map[*graph.Node]bool{}, true
	var visit func(v *graph.Value)
	visit = func(v *graph.Value) {
		n := graph.Storage(v).Node
		if n == nil || seen[n] || v.Shape().Elems() != x.Shape().Elems() {
			return
		}
		if _, function := n.Op.(graph.Elementwise); !function || !loop(n) || z.isStored(n.Out[0]) {
			return
		}
		seen[n] = true
		for _, w := range n.In {
			visit(w)
		}
		nodes = append(nodes, n)
		if ok {
			fine, ok = refine(fine, n.Out[0].Shape())
		}
	}
	if visit(x); !ok {
		return nil, nil
	}
	return nodes, fine
}

// isStored reports whether v goes to memory whatever is fused: the host reads it, or a node that is neither a loop nor a
// pool.
func (z *defUse) isStored(v *graph.Value) bool {
	return z.pinned[v.ID] || slices.ContainsFunc(z.readers.of(v.ID), func(i int) bool {
		n := z.f.Nodes[i]
		return !loop(n) && pooled(n) == nil
	})
}

// bodyOf returns a body that does what the nodes do, whose result is that of the last, and its operands as a loop of shape
// dims reads them. ok is false if it cannot.
func bodyOf(nodes []*graph.Node, dims graph.Shape) (body *graph.Body, sources []source, ok bool) {
	type operand struct {
		made bool
		i    int // of a node, or of a source
	}
	args := make([][]operand, len(nodes))
	for i, n := range nodes {
		for _, v := range n.In {
			if k := slices.Index(nodes, graph.Storage(v).Node); k >= 0 {
				args[i] = append(args[i], operand{true, k})
				continue
			}
			shape, fits := project(v.Shape(), n.Out[0].Shape(), dims)
			if !fits {
				return nil, nil, false
			}
			args[i] = append(args[i], operand{false, sourceAt(&sources, v, shape)})
		}
	}
	body = &graph.Body{Inputs: len(sources), Results: []int{len(sources) + len(nodes) - 1}}
	for i, n := range nodes {
		in := graph.Instr{Op: n.Op, DType: n.Out[0].DType()}
		for _, a := range args[i] {
			if a.made {
				a.i += body.Inputs
			}
			in.Arg = append(in.Arg, a.i)
		}
		body.Instrs = append(body.Instrs, in)
	}
	return body, sources, true
}

// refine returns the shape with the fewest dimensions of which both shapes, which have as many elements,
// are views that join neighboring dimensions, leaving out those of 1. ok is false if there is none.
func refine(a, b graph.Shape) (out graph.Shape, ok bool) {
	// What is left of the dimensions at hand, the last first.
	i, j, left, right := len(a), len(b), 1, 1
	for {
		for left == 1 && i > 0 {
			i--
			left = a[i]
		}
		for right == 1 && j > 0 {
			j--
			right = b[j]
		}
		if left == 1 || right == 1 {
			slices.Reverse(out)
			return out, left == right
		}
		d := min(left, right)
		if max(left, right)%d != 0 {
			return nil, false
		}
		out = append(out, d)
		left, right = left/d, right/d
	}
}
