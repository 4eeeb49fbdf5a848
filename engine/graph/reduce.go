package graph

import (
	"fmt"
	"math/bits"
	"slices"
)

// ReduceKind is how elements are combined.
type ReduceKind uint8

// The reductions.
const (
	ReduceSum ReduceKind = iota
	ReduceMean
	ReduceMax
)

// Reduce combines the elements along Axes (a bit per dimension), in float32 or better.
// With Keep the reduced dimensions remain, with extent 1.
type Reduce struct {
	Kind ReduceKind
	Axes uint32
	Keep bool
}

// Name is "sum", "mean" or "max_reduce".
func (r Reduce) Name() string { return [...]string{"sum", "mean", "max_reduce"}[r.Kind] }

// Has reports whether dimension i is reduced.
func (r Reduce) Has(i int) bool { return r.Axes>>i&1 == 1 }

// Infer removes the axes.
func (r Reduce) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	s := in[0].Shape
	if r.Axes>>len(s) != 0 {
		return nil, fmt.Errorf("axis %d is outside shape %v", bits.Len32(r.Axes)-1, s)
	}
	var out Shape
	for i, d := range s {
		switch {
		case !r.Has(i):
			out = append(out, d)
		case r.Keep:
			out = append(out, 1)
		}
	}
	return []Type{{F32, out}}, nil
}

// Matrices describes a reduction over neighboring dimensions of s as one of outer
// matrices over their rows, with one column if the last dimension is reduced. ok is false
// for any other reduction.
func (r Reduce) Matrices(s Shape) (outer, rows, cols int, ok bool) {
	outer, rows, cols = 1, 1, 1
	for i := len(s) - 1; i >= 0; i-- {
		switch {
		case s[i] == 1:
		case !r.Has(i) && rows == 1:
			cols *= s[i]
		case r.Has(i) && outer == 1:
			rows *= s[i]
		case r.Has(i):
			return 0, 0, 0, false
		default:
			outer *= s[i]
		}
	}
	return outer, rows, cols, true
}

// Columns is Matrices, for sums over several rows of several columns only.
func (r Reduce) Columns(s Shape) (outer, rows, cols int, ok bool) {
	outer, rows, cols, ok = r.Matrices(s)
	return outer, rows, cols, ok && r.Kind == ReduceSum && rows > 1 && cols > 1
}

// Count is how many elements are combined into one.
func (r Reduce) Count(s Shape) int {
	n := 1
	for i, d := range s {
		if r.Has(i) {
			n *= d
		}
	}
	return n
}

// Grad stretches the gradient; for the maximum it goes to every element that attains it.
func (r Reduce) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	x := n.In[0]
	keep := x.Shape().Clone()
	for i := range keep {
		if r.Has(i) {
			keep[i] = 1
		}
	}
	d := b.Reshape(dout[0], keep...)
	switch r.Kind {
	case ReduceMean:
		d = b.MulC(d, 1/float64(r.Count(x.Shape())))
	case ReduceMax:
		return []*Value{b.Mul(b.fn(FnEqual, x, b.Reshape(n.Out[0], keep...)), d)}
	}
	return []*Value{b.BroadcastTo(d, x.Shape()...)}
}

// Cost is one read.
func (Reduce) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	c.FLOPs = float64(in[0].Shape.Elems())
	return c
}

// Autocast reads 16-bit operands as they are; the result is F32.
func (r Reduce) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), r }

func (b *Builder) reduce(k ReduceKind, x *Value, keep bool, axes []int) *Value {
	var mask uint32
	if len(axes) == 0 {
		mask = 1<<len(x.Shape()) - 1
	}
	for _, a := range axes {
		if a < 0 {
			a += len(x.Shape())
		}
		mask |= 1 << a
	}
	if mask == 0 {
		return x
	}
	return b.emit1(Reduce{k, mask, keep}, x)
}

// Sum adds up x along axes (all of them if none is given; -1 is the last).
func (b *Builder) Sum(x *Value, axes ...int) *Value { return b.reduce(ReduceSum, x, false, axes) }

// Mean averages x along axes.
func (b *Builder) Mean(x *Value, axes ...int) *Value { return b.reduce(ReduceMean, x, false, axes) }

// MaxAlong is the maximum of x along axes.
func (b *Builder) MaxAlong(x *Value, axes ...int) *Value { return b.reduce(ReduceMax, x, false, axes) }

// SumKeep, MeanKeep and MaxKeep keep the reduced dimensions with extent 1.
func (b *Builder) SumKeep(x *Value, axes ...int) *Value  { return b.reduce(ReduceSum, x, true, axes) }
func (b *Builder) MeanKeep(x *Value, axes ...int) *Value { return b.reduce(ReduceMean, x, true, axes) }
func (b *Builder) MaxKeep(x *Value, axes ...int) *Value  { return b.reduce(ReduceMax, x, true, axes) }

// SumTo sums x over the dimensions along which shape s was stretched to it: the adjoint
// of broadcasting.
func (b *Builder) SumTo(x *Value, s Shape) *Value {
	if x.Shape().Equal(s) {
		return x
	}
	var axes []int
	lead := len(x.Shape()) - len(s)
	for i, d := range x.Shape() {
		if i < lead || (s[i-lead] == 1 && d != 1) {
			axes = append(axes, i)
		}
	}
	if len(axes) > 0 {
		x = b.Sum(x, axes...)
	}
	return b.Reshape(x, slices.Clone(s)...)
}
