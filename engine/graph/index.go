package graph

import "fmt"

// TopK takes the K largest elements of each row, largest first, and the first of equal
// ones first. Operand: x [..., N]. Results: the values [..., K] and their indices I32
// [..., K].
type TopK struct{ K int }

// Name is "top_k".
func (TopK) Name() string { return "top_k" }

// Infer returns the two results.
func (t TopK) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	if len(in[0].Shape) == 0 || t.K < 1 || t.K > in[0].Shape.Last() {
		return nil, fmt.Errorf("cannot take the %d largest of rows of %v", t.K, in[0])
	}
	s := in[0].Shape.Clone()
	s[len(s)-1] = t.K
	return []Type{{in[0].DType, s}, {I32, s.Clone()}}, nil
}

// Grad puts the gradients where the values were.
func (t TopK) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	return []*Value{b.emit1(Scatter{N: n.In[0].Shape().Last()}, dout[0], n.Out[1])}
}

// Cost is one read.
func (t TopK) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	c.FLOPs = float64(t.K) * float64(in[0].Shape.Elems())
	return c
}

// Autocast compares in any format.
func (t TopK) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), t }

// TopK returns the k largest elements of each row of x and their indices; see [TopK].
func (b *Builder) TopK(x *Value, k int) (values, indices *Value) {
	out := b.Emit(TopK{k}, x)
	return out[0], out[1]
}

// Gather picks elements of rows: result[..., k] = x[..., index[..., k]].
// Operands: x [..., N] and index I32 [..., K]. ([Embedding] picks whole rows.)
// Indices outside [0, N) are the host's error.
type Gather struct{}

// Name is "gather".
func (Gather) Name() string { return "gather" }

// Infer returns the shape of the index.
func (Gather) Infer(in []Type) ([]Type, error) {
	if len(in) != 2 || len(in[0].Shape) == 0 || in[1].DType != I32 || !sameRows(in[0].Shape, in[1].Shape) {
		return nil, fmt.Errorf("wants x [..., N] and an i32 index [..., K], got %v", in)
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	return []Type{{in[0].DType, in[1].Shape.Clone()}}, nil
}

// sameRows reports whether s and t differ in their last dimension only.
func sameRows(s, t Shape) bool {
	return len(s) == len(t) && len(s) > 0 && s[:len(s)-1].Equal(t[:len(t)-1])
}

// Grad adds up the gradients where the elements were.
func (Gather) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	return []*Value{b.emit1(Scatter{N: n.In[0].Shape().Last()}, dout[0], n.In[1]), nil}
}

// Cost reads and writes the picked elements.
func (Gather) Cost(in, out []Type) Cost { return traffic([]Type{out[0], in[1]}, out, 0) }

// Autocast keeps the format.
func (g Gather) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), g }

// Gather picks elements of the rows of x; see [Gather].
func (b *Builder) Gather(x, index *Value) *Value { return b.emit1(Gather{}, x, index) }

// Scatter is the adjoint of [Gather]: element n of a row of the result [..., N]
// is the sum, in order, of the row's elements whose index is n. Operands: x
// [..., K] and index I32 [..., K].
type Scatter struct{ N int }

// Name is "scatter".
func (Scatter) Name() string { return "scatter" }

// Infer returns [..., N].
func (s Scatter) Infer(in []Type) ([]Type, error) {
	if len(in) != 2 || in[1].DType != I32 || len(in[0].Shape) == 0 || !in[0].Shape.Equal(in[1].Shape) || s.N < 1 {
		return nil, fmt.Errorf("wants x and an i32 index of one shape [..., K] and rows of at least 1 element, got %v and %d", in, s.N)
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	out := in[0].Shape.Clone()
	out[len(out)-1] = s.N
	return []Type{{in[0].DType, out}}, nil
}

// Grad picks the elements back.
func (s Scatter) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	return []*Value{b.emit1(Gather{}, dout[0], n.In[1]), nil}
}

// Cost is one pass over memory.
func (Scatter) Cost(in, out []Type) Cost { return traffic(in, out, 0) }

// Autocast takes any format and adds up in float32.
func (s Scatter) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), s }

// Scatter adds the elements of the rows of x up by index; see [Scatter].
func (b *Builder) Scatter(x, index *Value, n int) *Value { return b.emit1(Scatter{n}, x, index) }

// ArgMax is the index of the largest element of each row of x [..., N], the
// first of equal ones: I32 [...]. No gradient flows through it.
type ArgMax struct{}

// Name is "arg_max".
func (ArgMax) Name() string { return "arg_max" }

// Infer drops the last dimension.
func (ArgMax) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if len(in[0].Shape) == 0 {
		return nil, fmt.Errorf("wants rows, got the scalar %v", in[0])
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	return []Type{{I32, in[0].Shape[:len(in[0].Shape)-1].Clone()}}, nil
}

// Grad: none.
func (ArgMax) Grad(*Builder, *Node, []*Value) []*Value { return []*Value{nil} }

// Cost is one read.
func (ArgMax) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	c.FLOPs = float64(in[0].Shape.Elems())
	return c
}

// Autocast compares in any format.
func (a ArgMax) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), a }

// ArgMax is the index of the largest element of each row of x.
func (b *Builder) ArgMax(x *Value) *Value { return b.emit1(ArgMax{}, x) }

// OneHot is F32 [..., N] with a 1 at each index and 0 elsewhere; an index
// outside [0, N) gives zeros. Operand: I32 [...].
type OneHot struct{ N int }

// Name is "one_hot".
func (OneHot) Name() string { return "one_hot" }

// Infer appends N.
func (o OneHot) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if in[0].DType != I32 || o.N < 1 {
		return nil, fmt.Errorf("wants i32 indices and at least 1 place, got %v and %d", in[0], o.N)
	}
	return []Type{{F32, append(in[0].Shape.Clone(), o.N)}}, nil
}

// Grad: none.
func (OneHot) Grad(*Builder, *Node, []*Value) []*Value { return []*Value{nil} }

// Cost is one write.
func (OneHot) Cost(in, out []Type) Cost { return traffic(in, out, 0) }

// OneHot marks each index among n places; see [OneHot].
func (b *Builder) OneHot(index *Value, n int) *Value { return b.emit1(OneHot{n}, index) }
