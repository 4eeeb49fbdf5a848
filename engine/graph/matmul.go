package graph

import "fmt"

// MatMul is C = op(A) op(B) over the last two dimensions, op being the transpose if requested.
// Leading dimensions (none, or the same in both) are batches. Products accumulate in float32.
// With Accumulate there is a third operand, a state that C is added to in place. Body is applied
// to each finished tile of C, with operands 2.. as its further inputs (see [Fused]); it excludes
// Accumulate. MapA and MapB are functions of one argument applied to the elements of A and B as
// they are read, rounded to the format of their operand; such an operand is not transposed. The
// zero value means no function. B may be a quantized matrix: its elements are decoded as they are
// read, and rounded to the format of A. With SumA there is one more result, the last: the sums of
// op(A) over K, F32 [M], for a transposed A without batches; when A is the gradient of a linear
// layer's result, they are that of its bias.
type MatMul struct {
	TransA, TransB bool
	MapA, MapB     Elementwise
	// Out is the format of C; Invalid: that of A.
	Out        DType
	Accumulate bool
	SumA       bool
	// TF32 rounds float32 factors; see [TF32Rule].
	TF32 bool
	Body *Body
}

// Name is "matmul".
func (MatMul) Name() string { return "matmul" }

// Dims are the batch count and the extents of the matmul op(A)[M,K] op(B)[K,N].
func (m MatMul) Dims(in []Type) (batch, rows, cols, inner int) {
	a, b := in[0].Shape, in[1].Shape
	batch = int(a[:len(a)-2].Elems())
	rows, inner = a[len(a)-2], a[len(a)-1]
	if m.TransA {
		rows, inner = inner, rows
	}
	cols = b[len(b)-1]
	if m.TransB {
		cols = b[len(b)-2]
	}
	return
}

// Infer checks the inner dimension.
func (m MatMul) Infer(in []Type) ([]Type, error) {
	if len(in) < 2 || len(in[0].Shape) < 2 || len(in[0].Shape) != len(in[1].Shape) {
		return nil, fmt.Errorf("wants two operands of the same rank >= 2, got %v", in)
	}
	if err := reals(in[:1]...); err != nil {
		return nil, err
	}
	if err := m.second(in[1]); err != nil {
		return nil, err
	}
	for i, f := range []Elementwise{m.MapA, m.MapB} {
		if f == (Elementwise{}) {
			continue
		}
		if f.Fn.Arity() != 1 || f.Out != Invalid || []bool{m.TransA, m.TransB}[i] {
			return nil, fmt.Errorf("cannot put operand %d through %v: wants a function of one argument that keeps the format, and an operand that is not transposed", i, f.Fn)
		}
	}
	a, b := in[0].Shape, in[1].Shape
	for i := range a[:len(a)-2] {
		if a[i] != b[i] {
			return nil, fmt.Errorf("batch dimensions of %v and %v differ", a, b)
		}
	}
	_, rows, cols, inner := m.Dims(in)
	kb := b[len(b)-2]
	if m.TransB {
		kb = b[len(b)-1]
	}
	if kb != inner {
		return nil, fmt.Errorf("inner dimensions differ: %v (transposed: %v) and %v (transposed: %v)", a, m.TransA, b, m.TransB)
	}
	out := m.Out
	if out == Invalid {
		out = in[0].DType
	}
	t := Type{out, append(a[:len(a)-2].Clone(), rows, cols)}
	if m.SumA {
		if !m.TransA || len(a) != 2 {
			return nil, fmt.Errorf("sums a transposed matrix, got %v (transposed: %v)", a, m.TransA)
		}
		m.SumA = false
		types, err := m.Infer(in)
		return append(types, T(F32, rows)), err
	}
	if m.Accumulate {
		if m.Body != nil {
			return nil, fmt.Errorf("cannot accumulate and run a body")
		}
		if len(in) != 3 || in[2].DType != F32 || !in[2].Shape.Equal(t.Shape) {
			return nil, fmt.Errorf("accumulates into an f32%v state, got %v", t.Shape, in[2:])
		}
		return []Type{in[2]}, nil
	}
	if m.Body != nil {
		return m.Body.infer(append([]Type{t}, in[2:]...))
	}
	if err := want(in, 2); err != nil {
		return nil, err
	}
	return []Type{t}, nil
}

// second checks the format of B, the second operand.
func (m MatMul) second(b Type) error {
	switch {
	case b.DType.Float():
		return nil
	case !b.DType.Quantized():
		return fmt.Errorf("operand 1 is %v, want a floating-point or quantized type", b)
	case len(b.Shape) != 2 || m.MapB != (Elementwise{}):
		return fmt.Errorf("operand 1 is %v, want one matrix that goes through no function", b)
	}
	return nil
}

// Aliases: with Accumulate, C is operand 2.
func (m MatMul) Aliases(int) []Alias {
	if m.Accumulate {
		return []Alias{{0, 2}}
	}
	return nil
}

// Grad: dA = dC op(B)^T, dB = op(A)^T dC, with the transposes arranged so that
// nothing is copied. The gradient of a weight is F32.
func (m MatMul) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	d, x, y := dout[0], n.In[0], n.In[1]
	out := func(v *Value) DType {
		if v.State != nil {
			return F32
		}
		return Invalid
	}
	dx := MatMul{TransB: !m.TransB, Out: out(x)}
	dxIn := []*Value{d, y}
	if m.TransA {
		dx = MatMul{TransA: m.TransB, TransB: true, Out: out(x)}
		dxIn = []*Value{y, d}
	}
	dy := MatMul{TransA: !m.TransA, Out: out(y)}
	dyIn := []*Value{x, d}
	if m.TransB {
		dy = MatMul{TransA: true, TransB: m.TransA, Out: out(y)}
		dyIn = []*Value{d, x}
	}
	return []*Value{b.emit1(dx, dxIn...), b.emit1(dy, dyIn...)}
}

// Cost is 2 batch M N K, and the body's for each element of C, the maps' for
// each of A and B.
func (m MatMul) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	batch, rows, cols, inner := m.Dims(in)
	c.MatrixFLOPs = 2 * float64(batch) * float64(rows) * float64(cols) * float64(inner)
	c.FLOPs = c.MatrixFLOPs
	if m.Body != nil {
		c.FLOPs += m.Body.flops() * float64(out[0].Shape.Elems())
	}
	if m.SumA {
		c.FLOPs += float64(in[0].Shape.Elems())
	}
	if in[1].DType.Quantized() {
		c.FLOPs += decodeFLOPs * float64(in[1].Shape.Elems())
	}
	c.FLOPs += fns[m.MapA.Fn].flops*float64(in[0].Shape.Elems()) + fns[m.MapB.Fn].flops*float64(in[1].Shape.Elems())
	return c
}

// Autocast multiplies in the 16-bit format.
func (m MatMul) Autocast(in []Type, compute DType) ([]DType, Op) {
	want := make([]DType, len(in))
	want[0], want[1] = compute, compute
	if in[1].DType.Quantized() {
		want[1] = Invalid
	}
	return want, m
}

// MatMul is op(x) op(y); see [MatMul].
func (b *Builder) MatMul(x, y *Value, transX, transY bool) *Value {
	return b.emit1(MatMul{TransA: transX, TransB: transY}, x, y)
}

// Linear is x W^T + bias for x [..., K], W [N, K], bias [N] or nil: the layout
// of torch.nn.Linear.
func (b *Builder) Linear(x, w, bias *Value) *Value { return b.linear(x, w, bias, false) }

// LinearInOut is Linear for a weight stored as [K, N], like GPT-2's.
func (b *Builder) LinearInOut(x, w, bias *Value) *Value { return b.linear(x, w, bias, true) }

func (b *Builder) linear(x, w, bias *Value, inOut bool) *Value {
	s := x.Shape()
	in, out := 1, 0
	if inOut {
		in, out = 0, 1
	}
	if len(s) == 0 || len(w.Shape()) != 2 || s.Last() != w.Shape()[in] {
		b.Failf("linear: x %v does not fit weight %v", s, w.Shape())
	}
	rows := b.Reshape(x, s.Rows(), s.Last())
	y := b.adapted(LinearLayer{X: rows, Y: b.MatMul(rows, w, false, !inOut), W: w, InOut: inOut})
	if bias != nil {
		y = b.Add(y, bias)
	}
	to := s.Clone()
	to[len(to)-1] = w.Shape()[out]
	return b.Reshape(y, to...)
}
