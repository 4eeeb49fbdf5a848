package graph

import (
	"fmt"
	"slices"
)

// Constant is the scalar V.
type Constant struct{ V float64 }

// Name is "const".
func (Constant) Name() string { return "const" }

// Infer returns a float32 scalar.
func (Constant) Infer(in []Type) ([]Type, error) {
	if len(in) != 0 {
		return nil, fmt.Errorf("takes no operands, got %d", len(in))
	}
	return []Type{T(F32)}, nil
}

// Grad: no operands, no gradients.
func (Constant) Grad(*Builder, *Node, []*Value) []*Value { return nil }

// Cost is nothing.
func (Constant) Cost(_, _ []Type) Cost { return Cost{} }

// Scalar is the constant c.
func (b *Builder) Scalar(c float64) *Value { return b.emit1(Constant{c}) }

// Reshape gives the elements another shape without copying them.
type Reshape struct{ Shape Shape }

// Name is "reshape".
func (Reshape) Name() string { return "reshape" }

// Infer checks that the number of elements is unchanged.
func (r Reshape) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if in[0].Shape.Elems() != r.Shape.Elems() {
		return nil, fmt.Errorf("%v has %d elements, %v has %d", in[0].Shape, in[0].Shape.Elems(), r.Shape, r.Shape.Elems())
	}
	return []Type{{in[0].DType, r.Shape.Clone()}}, nil
}

// Grad reshapes back.
func (r Reshape) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	return []*Value{b.Reshape(dout[0], n.In[0].Shape()...)}
}

// Cost is nothing.
func (Reshape) Cost(_, _ []Type) Cost { return Cost{} }

// Autocast keeps the format.
func (r Reshape) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), r }

// Reshape gives x another shape; one extent may be -1 and is computed.
func (b *Builder) Reshape(x *Value, dims ...int) *Value {
	s := Shape(slices.Clone(dims))
	if i := slices.Index(s, -1); i >= 0 {
		s[i] = 1
		if n := s.Elems(); n > 0 {
			s[i] = int(x.Shape().Elems() / n)
		}
	}
	if s.Equal(x.Shape()) {
		return x
	}
	return b.emit1(Reshape{s}, x)
}

// Transpose permutes dimensions: result dimension i is operand dimension Perm[i].
type Transpose struct{ Perm []int }

// Name is "transpose".
func (Transpose) Name() string { return "transpose" }

// Infer permutes the shape.
func (t Transpose) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	s := in[0].Shape
	seen := make([]bool, len(s))
	out := make(Shape, len(s))
	if len(t.Perm) != len(s) {
		return nil, fmt.Errorf("permutation %v does not fit shape %v", t.Perm, s)
	}
	for i, p := range t.Perm {
		if p < 0 || p >= len(s) || seen[p] {
			return nil, fmt.Errorf("%v is not a permutation of %d dimensions", t.Perm, len(s))
		}
		seen[p] = true
		out[i] = s[p]
	}
	return []Type{{in[0].DType, out}}, nil
}

// Grad permutes back.
func (t Transpose) Grad(b *Builder, _ *Node, dout []*Value) []*Value {
	inv := make([]int, len(t.Perm))
	for i, p := range t.Perm {
		inv[p] = i
	}
	return []*Value{b.Transpose(dout[0], inv...)}
}

// Cost is one copy.
func (Transpose) Cost(in, out []Type) Cost { return traffic(in, out, 0) }

// Autocast keeps the format.
func (t Transpose) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), t }

// Transpose permutes the dimensions of x.
func (b *Builder) Transpose(x *Value, perm ...int) *Value { return b.emit1(Transpose{perm}, x) }

// Slice takes elements Start, Start+Step, ... (Len of them) along Axis.
type Slice struct{ Axis, Start, Len, Step int }

// Name is "slice".
func (Slice) Name() string { return "slice" }

// Infer checks the range.
func (s Slice) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	sh := in[0].Shape
	if s.Axis < 0 || s.Axis >= len(sh) {
		return nil, fmt.Errorf("axis %d is outside shape %v", s.Axis, sh)
	}
	if s.Len < 1 || s.Step < 1 || s.Start < 0 || s.Start+(s.Len-1)*s.Step >= sh[s.Axis] {
		return nil, fmt.Errorf("elements %d+%d*i (i<%d) are outside dimension %d of %v", s.Start, s.Step, s.Len, s.Axis, sh)
	}
	out := sh.Clone()
	out[s.Axis] = s.Len
	return []Type{{in[0].DType, out}}, nil
}

// Grad spreads the gradient into zeros.
func (s Slice) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	return []*Value{b.emit1(SliceGrad{s, n.In[0].Shape()[s.Axis]}, dout[0])}
}

// Cost is one copy of the part.
func (Slice) Cost(_, out []Type) Cost { return traffic(out, out, 0) }

// Autocast keeps the format.
func (s Slice) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), s }

// Slice takes n elements of x from start along axis.
func (b *Builder) Slice(x *Value, axis, start, n int) *Value {
	if start == 0 && axis < len(x.Shape()) && n == x.Shape()[axis] {
		return x
	}
	return b.emit1(Slice{axis, start, n, 1}, x)
}

// SliceStep takes n elements of x from start along axis, step apart.
func (b *Builder) SliceStep(x *Value, axis, start, n, step int) *Value {
	return b.emit1(Slice{axis, start, n, step}, x)
}

// Run returns the byte offset of the slice in its operand, a tensor of type t, and whether it is in
// one piece there.
func (s Slice) Run(t Type) (offset int64, ok bool) {
	return int64(s.Start) * t.Shape[s.Axis+1:].Elems() * t.DType.Size(), s.Step == 1 && t.Shape[:s.Axis].Elems() == 1
}

// SliceView is a Slice whose result is a part of its operand's buffer, where it is in one piece: nothing is
// copied. A pass makes it of a Slice, once it is known what lies where.
type SliceView struct{ Slice }

// Name is "slice_view".
func (SliceView) Name() string { return "slice_view" }

// Cost is none.
func (SliceView) Cost(_, _ []Type) Cost { return Cost{} }

// SliceGrad is the adjoint of Slice: the operand put into a tensor of zeros
// whose extent along the axis is Dim. With Len = operand extent it is padding.
type SliceGrad struct {
	Slice Slice
	Dim   int
}

// Name is "slice_grad".
func (SliceGrad) Name() string { return "slice_grad" }

// Infer restores the extent.
func (u SliceGrad) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	sh := in[0].Shape.Clone()
	if a := u.Slice.Axis; a < 0 || u.Slice.Start < 0 || u.Slice.Step < 1 || a >= len(sh) || sh[a] != u.Slice.Len || u.Slice.Start+(u.Slice.Len-1)*u.Slice.Step >= u.Dim {
		return nil, fmt.Errorf("cannot put %v at %d with step %d into %d elements of dimension %d", in[0].Shape, u.Slice.Start, u.Slice.Step, u.Dim, u.Slice.Axis)
	}
	sh[u.Slice.Axis] = u.Dim
	return []Type{{in[0].DType, sh}}, nil
}

// Grad slices the part out again.
func (u SliceGrad) Grad(b *Builder, _ *Node, dout []*Value) []*Value {
	return []*Value{b.emit1(u.Slice, dout[0])}
}

// Cost is one write of the whole and one read of the part.
func (SliceGrad) Cost(in, out []Type) Cost { return traffic(in, out, 0) }

// Autocast keeps the format.
func (u SliceGrad) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), u }

// SliceWrite returns its first operand with the elements that Slice takes replaced by the
// second.
type SliceWrite struct{ Slice Slice }

// Name is "slice_write".
func (SliceWrite) Name() string { return "slice_write" }

// Infer keeps the first operand's type.
func (w SliceWrite) Infer(in []Type) ([]Type, error) {
	if err := want(in, 2); err != nil {
		return nil, err
	}
	part, err := w.Slice.Infer(in[:1])
	if err != nil {
		return nil, err
	}
	if !part[0].Equal(in[1]) {
		return nil, fmt.Errorf("replaces %v, got %v", part[0], in[1])
	}
	return []Type{in[0]}, nil
}

// Grad returns zeros where the part is, and the part.
func (w SliceWrite) Grad(b *Builder, _ *Node, dout []*Value) []*Value {
	part := b.emit1(w.Slice, dout[0])
	zeros := b.BroadcastTo(b.Scalar(0), part.Shape()...)
	return []*Value{b.emit1(w, dout[0], b.Cast(zeros, part.DType())), part}
}

// Cost is one copy of the part: the rest stays where it is.
func (SliceWrite) Cost(in, _ []Type) Cost { return Cost{Bytes: 2 * float64(in[1].Bytes())} }

// Autocast keeps the format of the first operand.
func (w SliceWrite) Autocast(in []Type, _ DType) ([]DType, Op) {
	return []DType{Invalid, in[0].DType}, w
}

// InplaceOperands: the result may overwrite the first operand.
func (SliceWrite) InplaceOperands(*Node) []int { return []int{0} }

// Pad puts zeros around x along axis: before elements at the beginning, after at the end.
func (b *Builder) Pad(x *Value, axis, before, after int) *Value {
	n := x.Shape()[axis]
	return b.emit1(SliceGrad{Slice{axis, before, n, 1}, before + n + after}, x)
}

// Concat joins operands along Axis.
type Concat struct{ Axis int }

// Name is "concat".
func (Concat) Name() string { return "concat" }

// Infer adds up the extents along the axis.
func (c Concat) Infer(in []Type) ([]Type, error) {
	if len(in) == 0 || c.Axis < 0 || c.Axis >= len(in[0].Shape) {
		return nil, fmt.Errorf("axis %d is outside %v", c.Axis, in)
	}
	out := in[0].Shape.Clone()
	for _, t := range in[1:] {
		ok := len(t.Shape) == len(out) && t.DType == in[0].DType
		for i := range t.Shape {
			ok = ok && (i == c.Axis || t.Shape[i] == out[i])
		}
		if !ok {
			return nil, fmt.Errorf("cannot join %v and %v along dimension %d", in[0], t, c.Axis)
		}
		out[c.Axis] += t.Shape[c.Axis]
	}
	return []Type{{in[0].DType, out}}, nil
}

// Grad hands each operand its part.
func (c Concat) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	g := make([]*Value, len(n.In))
	at := 0
	for i, v := range n.In {
		d := v.Shape()[c.Axis]
		g[i] = b.Slice(dout[0], c.Axis, at, d)
		at += d
	}
	return g
}

// Cost is one copy.
func (Concat) Cost(in, out []Type) Cost { return traffic(in, out, 0) }

// Autocast joins in the 16-bit format when any operand has it.
func (c Concat) Autocast(in []Type, compute DType) ([]DType, Op) {
	want := make([]DType, len(in))
	for _, t := range in {
		if t.DType == compute {
			for i := range want {
				want[i] = compute
			}
		}
	}
	return want, c
}

// Concat joins xs along axis.
func (b *Builder) Concat(axis int, xs ...*Value) *Value {
	if len(xs) == 1 {
		return xs[0]
	}
	return b.emit1(Concat{axis}, xs...)
}

// ConcatView is a Concat whose operands are made as parts of its result's buffer, where each is in one piece:
// nothing is copied. A pass makes it of a Concat, once it is known what lies where.
type ConcatView struct{ Concat }

// Name is "concat_view".
func (ConcatView) Name() string { return "concat_view" }

// Cost is none.
func (ConcatView) Cost(_, _ []Type) Cost { return Cost{} }

// BroadcastTo is x stretched to dims by NumPy's rule, in its own storage.
func (b *Builder) BroadcastTo(x *Value, dims ...int) *Value {
	if x.Shape().Equal(dims) {
		return x
	}
	return b.emit1(Expand{Shape(slices.Clone(dims))}, x)
}

// Expand stretches dimensions of extent 1.
type Expand struct{ Shape Shape }

// Name is "expand".
func (Expand) Name() string { return "expand" }

// Infer checks that the operand stretches to the shape.
func (e Expand) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	s, err := Broadcast(in[0].Shape, e.Shape)
	if err != nil {
		return nil, err
	}
	if !s.Equal(e.Shape) {
		return nil, fmt.Errorf("%v does not stretch to %v", in[0].Shape, e.Shape)
	}
	return []Type{{in[0].DType, s}}, nil
}

// Grad sums over the stretched dimensions.
func (e Expand) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	return []*Value{b.SumTo(dout[0], n.In[0].Shape())}
}

// Cost is one write.
func (Expand) Cost(in, out []Type) Cost { return traffic(in, out, 0) }

// Autocast keeps the format.
func (e Expand) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), e }
