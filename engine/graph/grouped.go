package graph

import "fmt"

// GroupedMatMul multiplies groups of rows by a matrix of their own: rows
// offsets[e]..offsets[e+1] of x [R,K] by w[e], [K,N], or with Trans by the transpose of
// w[e], [N,K], the layout of torch.nn.Linear. With Bias there is a fourth operand, F32
// [E,N], that is added to the rows. Rows outside all groups, at the beginning or end,
// give 0, so that some of a routing's experts can have their own matrices. The work
// depends only on the number of rows, however they are distributed. Operands: x, w
// [E,...], offsets I32 [E+1] (see [Route]). Result: [R,N].
type GroupedMatMul struct {
	Trans, Bias bool
	TF32        bool // see [TF32Rule]
}

// Name is "grouped_matmul".
func (GroupedMatMul) Name() string { return "grouped_matmul" }

// Infer returns [R,N].
func (g GroupedMatMul) Infer(in []Type) ([]Type, error) {
	n := 3
	if g.Bias {
		n = 4
	}
	if err := want(in, n); err != nil {
		return nil, err
	}
	x, w := in[0].Shape, in[1].Shape
	if len(x) != 2 || len(w) != 3 {
		return nil, fmt.Errorf("wants rows [R,K] and matrices [E,...], got %v and %v", in[0], in[1])
	}
	if err := reals(in[:2]...); err != nil {
		return nil, err
	}
	inner, cols := w[1], w[2]
	if g.Trans {
		inner, cols = cols, inner
	}
	if x[1] != inner {
		return nil, fmt.Errorf("inner dimensions differ: %v and %v (transposed: %v)", x, w, g.Trans)
	}
	if !in[2].Equal(T(I32, w[0]+1)) {
		return nil, fmt.Errorf("the offsets of %d groups are i32[%d], got %v", w[0], w[0]+1, in[2])
	}
	if g.Bias && !in[3].Equal(T(F32, w[0], cols)) {
		return nil, fmt.Errorf("the bias is f32[%d,%d], got %v", w[0], cols, in[3])
	}
	return []Type{T(in[0].DType, x[0], cols)}, nil
}

// Grad multiplies group by group.
func (g GroupedMatMul) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	x, w, offsets := n.In[0], n.In[1], n.In[2]
	dx := b.emit1(GroupedMatMul{Trans: !g.Trans}, dout[0], w, offsets)
	outer := []*Value{x, dout[0], offsets}
	if g.Trans {
		outer = []*Value{dout[0], x, offsets}
	}
	out := []*Value{dx, b.emit1(GroupedOuter{}, outer...), nil}
	if g.Bias {
		out = append(out, b.emit1(GroupedSum{}, dout[0], offsets))
	}
	return out
}

func groupedCost(in, out []Type, rows, a, b int) Cost {
	c := traffic(in, out, 0)
	c.MatrixFLOPs = 2 * float64(rows) * float64(a) * float64(b)
	c.FLOPs = c.MatrixFLOPs
	return c
}

// Cost is one matmul of all rows with one matrix.
func (GroupedMatMul) Cost(in, out []Type) Cost {
	return groupedCost(in, out, in[0].Shape[0], in[0].Shape[1], out[0].Shape[1])
}

// Autocast multiplies in the 16-bit format.
func (g GroupedMatMul) Autocast(in []Type, compute DType) ([]DType, Op) {
	want := make([]DType, len(in))
	want[0], want[1] = compute, compute
	return want, g
}

// GroupedOuter is the gradient of grouped matrices: the F32 result [E,N,K] is
// for each group the transpose of its rows of a [R,N] times its rows of b
// [R,K], 0 for a group without rows. Operands: a, b, offsets I32 [E+1].
type GroupedOuter struct {
	TF32 bool // see [TF32Rule]
}

// Name is "grouped_outer".
func (GroupedOuter) Name() string { return "grouped_outer" }

// groupedRows checks the operands rows [R,...] and offsets, and returns E.
func groupedRows(rows []Type, offsets Type) (groups int, err error) {
	for _, t := range rows {
		if len(t.Shape) != 2 || t.Shape[0] != rows[0].Shape[0] {
			return 0, fmt.Errorf("wants as many rows in each operand, got %v", rows)
		}
	}
	if offsets.DType != I32 || len(offsets.Shape) != 1 || offsets.Shape[0] < 2 {
		return 0, fmt.Errorf("wants the offsets i32[E+1] of at least one group, got %v", offsets)
	}
	return offsets.Shape[0] - 1, reals(rows...)
}

// Infer returns [E,N,K].
func (GroupedOuter) Infer(in []Type) ([]Type, error) {
	if err := want(in, 3); err != nil {
		return nil, err
	}
	e, err := groupedRows(in[:2], in[2])
	if err != nil {
		return nil, err
	}
	return []Type{T(F32, e, in[0].Shape[1], in[1].Shape[1])}, nil
}

// Grad: second derivatives are not provided.
func (g GroupedOuter) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, g) }

// Cost is one matmul.
func (GroupedOuter) Cost(in, out []Type) Cost {
	return groupedCost(in, out, in[0].Shape[0], in[0].Shape[1], in[1].Shape[1])
}

// Autocast multiplies in the 16-bit format; the result is F32.
func (g GroupedOuter) Autocast(_ []Type, compute DType) ([]DType, Op) {
	return []DType{compute, compute, Invalid}, g
}

// GroupedSum adds up the rows of each group: F32 [E,N] from x [R,N] and the
// offsets I32 [E+1].
type GroupedSum struct{}

// Name is "grouped_sum".
func (GroupedSum) Name() string { return "grouped_sum" }

// Infer returns [E,N].
func (GroupedSum) Infer(in []Type) ([]Type, error) {
	if err := want(in, 2); err != nil {
		return nil, err
	}
	e, err := groupedRows(in[:1], in[1])
	if err != nil {
		return nil, err
	}
	return []Type{T(F32, e, in[0].Shape[1])}, nil
}

// Grad: second derivatives are not provided.
func (g GroupedSum) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, g) }

// Cost is one read.
func (GroupedSum) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	c.FLOPs = float64(in[0].Shape.Elems())
	return c
}

// Autocast takes any format and adds up in float32.
func (g GroupedSum) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), g }

// GroupedLinear is x w[e]^T + bias[e] for the rows x [R,K] that a routing gives each
// expert e; w [E,N,K], bias [E,N] or nil. A routing without offsets gives all rows to the
// only expert.
func (b *Builder) GroupedLinear(x, w, bias *Value, r Routing) *Value {
	if len(w.Shape()) != 3 {
		b.Failf("grouped_linear: the weight is %v, want a matrix for each group", w.Shape())
	}
	return b.adapted(LinearLayer{X: x, Y: b.groupedLinear(x, w, bias, r), W: w, Groups: w.Shape()[0], Routing: r})
}

func (b *Builder) groupedLinear(x, w, bias *Value, r Routing) *Value {
	if r.Offsets == nil {
		s := w.Shape()
		if s[0] != 1 {
			b.Failf("grouped_linear: %d groups want the offsets of their rows", s[0])
		}
		if bias != nil {
			bias = b.Reshape(bias, s[1])
		}
		return b.Linear(x, b.Reshape(w, s[1], s[2]), bias)
	}
	in := []*Value{x, w, r.Offsets}
	if bias != nil {
		in = append(in, bias)
	}
	return b.emit1(GroupedMatMul{Trans: true, Bias: bias != nil}, in...)
}
