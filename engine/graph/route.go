package graph

import "fmt"

// Route sorts tokens to experts (Shazeer et al. 2017). Operand: choice I32 [N,K], the
// experts in [0, Experts) that each token chooses. An expert takes the tokens that chose
// it in order of token, then of k, and with Capacity > 0 at most that many: the others
// are dropped. The R = N*K rows that are routed (min(N*K, Experts*Capacity) with a
// capacity) are sorted by expert. Results, all I32:
//
//	slot [N,K]          the row of each choice, -1 if dropped
//	source [R]          the choice n*K+k of each row, -1 after the last
//	offsets [Experts+1] expert e has the rows offsets[e]..offsets[e+1]
//	wanted [Experts]    how many chose each expert
type Route struct{ Experts, Capacity int }

// Name is "moe_route".
func (Route) Name() string { return "moe_route" }

// Rows is R for n tokens with k choices each.
func (r Route) Rows(n, k int) int {
	if r.Capacity > 0 {
		return min(n*k, r.Experts*r.Capacity)
	}
	return n * k
}

// Infer returns the four results.
func (r Route) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if in[0].DType != I32 || len(in[0].Shape) != 2 || r.Experts < 1 || r.Capacity < 0 {
		return nil, fmt.Errorf("wants i32 choices [N,K] among at least 1 expert and a capacity of at least 0, got %v, %d experts and a capacity of %d", in[0], r.Experts, r.Capacity)
	}
	return []Type{
		{I32, in[0].Shape.Clone()},
		T(I32, r.Rows(in[0].Shape[0], in[0].Shape[1])),
		T(I32, r.Experts+1), T(I32, r.Experts),
	}, nil
}

// Grad: none.
func (Route) Grad(*Builder, *Node, []*Value) []*Value { return []*Value{nil} }

// Cost is one pass over memory.
func (Route) Cost(in, out []Type) Cost { return traffic(in, out, 0) }

// Routing is the result of [Route].
type Routing struct{ Slot, Source, Offsets, Wanted *Value }

// Route sorts tokens to experts; see [Route].
func (b *Builder) Route(op Route, choice *Value) Routing {
	out := b.Emit(op, choice)
	return Routing{out[0], out[1], out[2], out[3]}
}

// routed checks slot [N,K] and source [R], and the weights [N,K] if any.
func routed(in []Type, weighted bool) error {
	n := 2
	if weighted {
		n = 3
	}
	if err := want(in, n); err != nil {
		return err
	}
	if in[0].DType != I32 || len(in[0].Shape) != 2 || in[1].DType != I32 || len(in[1].Shape) != 1 {
		return fmt.Errorf("wants the slots i32[N,K] and sources i32[R] of a routing, got %v", in[:2])
	}
	if weighted && !in[2].Equal(in[0].With(F32)) {
		return fmt.Errorf("the slots are %v, so weights are f32%v; got %v", in[0], in[0].Shape, in[2])
	}
	return nil
}

// Dispatch copies tokens to the rows they were routed to: row r of the result [R,D] is
// the token source[r]/K, times its weight with Weighted, and rows after the last are 0.
// Operands: x [N,D], slot, source and weights F32 [N,K].
type Dispatch struct{ Weighted bool }

// Name is "moe_dispatch".
func (Dispatch) Name() string { return "moe_dispatch" }

// Infer returns [R,D].
func (d Dispatch) Infer(in []Type) ([]Type, error) {
	if len(in) < 3 || len(in[0].Shape) != 2 {
		return nil, fmt.Errorf("wants tokens [N,D] and a routing, got %v", in)
	}
	if err := routed(in[1:], d.Weighted); err != nil {
		return nil, err
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	if in[0].Shape[0] != in[1].Shape[0] {
		return nil, fmt.Errorf("%v has other tokens than the slots %v", in[0], in[1])
	}
	return []Type{T(in[0].DType, in[2].Shape[0], in[0].Shape[1])}, nil
}

// Grad combines the gradients of the rows.
func (d Dispatch) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	g := make([]*Value, len(n.In))
	g[0] = b.emit1(Combine(d), append([]*Value{dout[0]}, n.In[1:]...)...)
	if d.Weighted {
		g[3] = b.emit1(RoutedDot{}, n.In[0], dout[0], n.In[1])
	}
	return g
}

// Cost is one pass over memory.
func (d Dispatch) Cost(in, out []Type) Cost { return traffic(in, out, 1) }

// Autocast keeps the format of the tokens.
func (d Dispatch) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), d }

// Combine returns rows to their tokens: token n of the result [N,D] is the sum over k of
// row slot[n,k], times the weight [n,k] with Weighted; dropped choices contribute
// nothing. Operands: y [R,D], slot, source and weights F32 [N,K].
type Combine struct{ Weighted bool }

// Name is "moe_combine".
func (Combine) Name() string { return "moe_combine" }

// Infer returns [N,D].
func (c Combine) Infer(in []Type) ([]Type, error) {
	if len(in) < 3 || len(in[0].Shape) != 2 {
		return nil, fmt.Errorf("wants rows [R,D] and a routing, got %v", in)
	}
	if err := routed(in[1:], c.Weighted); err != nil {
		return nil, err
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	if in[0].Shape[0] != in[2].Shape[0] {
		return nil, fmt.Errorf("%v has other rows than the sources %v", in[0], in[2])
	}
	return []Type{T(in[0].DType, in[1].Shape[0], in[0].Shape[1])}, nil
}

// Grad dispatches the gradients of the tokens.
func (c Combine) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	g := make([]*Value, len(n.In))
	g[0] = b.emit1(Dispatch(c), append([]*Value{dout[0]}, n.In[1:]...)...)
	if c.Weighted {
		g[3] = b.emit1(RoutedDot{}, dout[0], n.In[0], n.In[1])
	}
	return g
}

// Cost is one pass over memory.
func (c Combine) Cost(in, out []Type) Cost { return traffic(in, out, 2*float64(in[1].Shape[1])) }

// Autocast keeps the format of the rows.
func (c Combine) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), c }

// RoutedDot is the gradient of routing weights: F32 [N,K], the scalar product
// of token n and row slot[n,k], 0 for dropped choices. Operands: x [N,D], y
// [R,D], slot [N,K].
type RoutedDot struct{}

// Name is "moe_dot".
func (RoutedDot) Name() string { return "moe_dot" }

// Infer returns [N,K].
func (RoutedDot) Infer(in []Type) ([]Type, error) {
	if len(in) != 3 || in[2].DType != I32 || len(in[0].Shape) != 2 || len(in[1].Shape) != 2 || len(in[2].Shape) != 2 ||
		in[0].Shape[1] != in[1].Shape[1] || in[0].Shape[0] != in[2].Shape[0] {
		return nil, fmt.Errorf("wants x [N,D], y [R,D] and slots i32[N,K], got %v", in)
	}
	if err := reals(in[:2]...); err != nil {
		return nil, err
	}
	return []Type{in[2].With(F32)}, nil
}

// Grad: second derivatives are not provided.
func (r RoutedDot) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, r) }

// Cost is one pass over memory.
func (RoutedDot) Cost(in, out []Type) Cost { return traffic(in, out, 2*float64(in[0].Shape[1])) }

// Autocast takes rows in any format.
func (r RoutedDot) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), r }

// Dispatch copies tokens x [N,D] to the rows of a routing; see [Dispatch].
func (b *Builder) Dispatch(x *Value, r Routing) *Value {
	return b.emit1(Dispatch{}, x, r.Slot, r.Source)
}

// Combine adds up the rows y [R,D] of a routing, weighted by weights [N,K]; see [Combine].
func (b *Builder) Combine(y, weights *Value, r Routing) *Value {
	return b.emit1(Combine{Weighted: true}, y, r.Slot, r.Source, weights)
}
