package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// source is an operand of a body: a stored value, and the value and shape in
// which it is read.
type source struct {
	stored, seen *graph.Value
	shape        graph.Shape
}

// sourceAt returns the index in sources of what v sees in a shape, which is appended if it is new.
func sourceAt(sources *[]source, v *graph.Value, shape graph.Shape) int {
	s := graph.Storage(v)
	k := slices.IndexFunc(*sources, func(x source) bool { return x.stored == s && x.shape.Equal(shape) })
	if k < 0 {
		k, *sources = len(*sources), append(*sources, source{s, v, shape})
	}
	return k
}

// body returns the program of the loop of c, with its operands. If the base is a matmul,
// it is register 0 and not among the sources.
func (z *fuser) body(c *cluster) (*graph.Body, []source) {
	b := &graph.Body{}
	register := map[int]int{} // of the values of c, by ID
	if c.base != nil {
		register[c.base.Out[0].ID] = 0
		b.Inputs++
	}
	var sources []source
	first := b.Inputs
	find := func(n *graph.Node, v *graph.Value) int {
		shape, _ := operandShape(c.dims, n, v)
		return first + sourceAt(&sources, v, shape)
	}
	for _, n := range c.nodes {
		for _, v := range n.In {
			if !z.defines(c, graph.Storage(v)) {
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
			// Reading can broadcast; only a result needs an instruction of its own.
			if !z.escapes(c, out) {
				register[out.ID] = arg[0]
				continue
			}
			op = graph.Elementwise{Fn: graph.FnCopy}
		}
		register[out.ID] = b.Inputs + len(b.Instrs)
		b.Instrs = append(b.Instrs, graph.Instr{Op: op, Arg: arg, DType: out.DType()})
	}
	for _, v := range z.results(c) {
		b.Results = append(b.Results, register[v.ID])
	}
	for _, n := range c.reductions {
		s := graph.Storage(n.In[0])
		r, made := register[s.ID]
		if !made {
			r = first + slices.IndexFunc(sources, func(x source) bool { return x.stored == s && x.shape.Equal(c.dims) })
		}
		b.Results = append(b.Results, r)
	}
	return b, sources
}

// inputs returns the operands of a body, each in the shape in which it is read.
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

// emit emits the node that replaces c.
func (z *fuser) emit(r *rebuilder, c *cluster) {
	body, sources := z.body(c)
	results := z.results(c)
	in := r.inputs(sources)
	if c.base == nil {
		op := graph.Fused{Body: body}
		for _, n := range c.reductions {
			op.Reductions = append(op.Reductions, n.Op.(graph.Reduce))
			results = append(results, n.Out[0])
		}
		r.replace(results, r.b.Emit(op, in...))
		return
	}
	in = slices.Concat(r.all(c.base.In), in)
	switch op := c.base.Op.(type) {
	case graph.MatMul:
		op.Body = body
		out := r.b.Emit(op, in...)
		r.replace(results, out)
		r.replace(c.base.Out[1:], out[len(results):]) // the sums of an operand
	case graph.LayerNormGrad:
		// The sum replaces the gradient of x.
		out := r.b.Emit(op, in...)
		r.replace(results, out)
		r.replace(c.base.Out[1:], out[1:])
	}
}

// legalBody reports whether the body of c has no more registers and results than the
// device allows, and each result has the full shape: a value computed only from stretched
// operands does not.
func (z *fuser) legalBody(c *cluster) bool {
	b, sources := z.body(c)
	if b.Inputs+len(b.Instrs) > z.can.Registers || len(b.Results) > z.can.Results {
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
