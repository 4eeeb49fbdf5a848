package cuda

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// copyLoop copies the elements of a shape from one layout to another.
func (l *lowering) copyLoop(shape graph.Shape, from strided, to strided) {
	k := newLoop(copyBody(to.dtype), shape)
	k.in[0] = from
	k.write(to.dtype, to.at, to.stride)
	l.loop(k)
}

// permute copies a tensor with its dimensions in another order: dimension i of the result is dimension
// perm[i] of the operand.
func (l *lowering) permute(t graph.Type, x address, to graph.Type, at address, perm []int) {
	strides := t.Shape.Strides(t.Shape)
	moved := make([]int, len(perm))
	for i, p := range perm {
		moved[i] = strides[p]
	}
	l.copyLoop(to.Shape, strided{dtype: t.DType, at: x, stride: moved}, strided{dtype: to.DType, at: at, stride: to.Shape.Strides(to.Shape)})
}

func (l *lowering) transpose(n *graph.Node, op graph.Transpose) {
	l.permute(n.In[0].Type, l.at(n.In[0]), n.Out[0].Type, l.at(n.Out[0]), op.Perm)
}

func (l *lowering) slice(n *graph.Node, op graph.Slice) {
	x, y := n.In[0], n.Out[0]
	part := sliced(op, x.Type, l.at(x))
	l.copyLoop(y.Shape(), part, strided{dtype: y.DType(), at: l.at(y), stride: y.Shape().Strides(y.Shape())})
}

// sliced describes a slice of a tensor without copying it.
func sliced(op graph.Slice, t graph.Type, at address) strided {
	strides := t.Shape.Strides(t.Shape)
	first := int64(op.Start) * int64(elementStride(t.Shape, op.Axis)) * t.DType.Size()
	strides[op.Axis] *= op.Step
	return strided{dtype: t.DType, at: at.plus(first), stride: strides}
}

// elementStride is the distance in elements between neighbors along a dimension, even if its extent is 1.
func elementStride(s graph.Shape, axis int) int { return int(s[axis+1:].Elems()) }

func (l *lowering) sliceGrad(n *graph.Node, slice graph.Slice) {
	x, y := n.In[0], n.Out[0]
	if x.Shape().Elems() != y.Shape().Elems() {
		l.clear(l.at(y), y.Type.Bytes())
	}
	part := sliced(slice, y.Type, l.at(y))
	l.copyLoop(x.Shape(), strided{dtype: x.DType(), at: l.at(x), stride: x.Shape().Strides(x.Shape())}, part)
}

func (l *lowering) sliceWrite(n *graph.Node, slice graph.Slice) {
	x, part, y := n.In[0], n.In[1], n.Out[0]
	contiguous := func(v *graph.Value) strided {
		return strided{dtype: v.DType(), at: l.at(v), stride: v.Shape().Strides(v.Shape())}
	}
	if l.at(x) != l.at(y) {
		l.copyLoop(y.Shape(), contiguous(x), contiguous(y))
	}
	l.copyLoop(part.Shape(), contiguous(part), sliced(slice, y.Type, l.at(y)))
}

func (l *lowering) concat(n *graph.Node, op graph.Concat) {
	y := n.Out[0]
	from := 0
	for _, x := range n.In {
		extent := x.Shape()[op.Axis]
		part := sliced(graph.Slice{Axis: op.Axis, Start: from, Len: extent, Step: 1}, y.Type, l.at(y))
		l.copyLoop(x.Shape(), strided{dtype: x.DType(), at: l.at(x), stride: x.Shape().Strides(x.Shape())}, part)
		from += extent
	}
}

// clear writes zeros.
func (l *lowering) clear(at address, bytes int64) {
	words := ceil(bytes, 4)
	l.run("fill", int(ceil(words, 1024)), 256, new(params).ptr(at).u64(uint64(words)).f32(0)).does("block", int(ceil(words, 1024))).does("warp", int(ceil(words, 128)))
}

func (l *lowering) constant(n *graph.Node, op graph.Constant) {
	l.run("fill", 1, 256, new(params).ptr(l.at(n.Out[0])).u64(1).f32(op.V)).does("block", 1).does("warp", 1)
}

// assign writes or adds to a state.
func (l *lowering) assign(n *graph.Node, op graph.Assign) {
	s, v := n.In[0], n.In[1]
	if op.Round.Mode == graph.Stochastic {
		p := new(params).ptr(l.at(s)).ptr(l.at(v)).ptr(l.at(n.In[2])).u64(uint64(s.Shape().Elems()))
		p.u32(flag(op.Add), int(op.Round.Stream)).u64(op.Round.Seed)
		l.run("accumulate_"+v.DType().String(), int(ceil(s.Shape().Elems(), 1024)), 256, p).does("warp", int(ceil(s.Shape().Elems(), 128)))
		return
	}
	b := copyBody(s.DType())
	in := []*graph.Value{v}
	if op.Add {
		b = &graph.Body{Inputs: 2, Results: []int{2}, Instrs: []graph.Instr{{Op: graph.Elementwise{Fn: graph.FnAdd}, Arg: []int{1, 0}, DType: s.DType()}}}
		in = append(in, s)
	}
	k := newLoop(b, s.Shape())
	for i, x := range in {
		k.read(i, x.Type, l.at(x))
	}
	k.write(s.DType(), l.at(s), slices.Clone(s.Shape().Strides(s.Shape())))
	l.loop(k)
}
