package graph

import "fmt"

// CrossEntropy is sum_n weight[n] * (log-sum-exp(logits[n]) - logits[n, label[n]]).
// A negative label counts as weight 0. Operands: logits [N, V], labels I32 [N],
// weights F32 [N]. Results: the F32 scalar and the log-sum-exp [N].
type CrossEntropy struct{}

// Name is "cross_entropy".
func (CrossEntropy) Name() string { return "cross_entropy" }

// Infer checks the operands.
func (CrossEntropy) Infer(in []Type) ([]Type, error) {
	if len(in) != 3 || len(in[0].Shape) != 2 {
		return nil, fmt.Errorf("wants logits [N, V], labels [N] and weights [N], got %v", in)
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	n := in[0].Shape[0]
	if !in[1].Equal(T(I32, n)) || !in[2].Equal(T(F32, n)) {
		return nil, fmt.Errorf("logits %v want labels i32[%d] and weights f32[%d], got %v", in[0], n, n, in[1:])
	}
	return []Type{T(F32), T(F32, n)}, nil
}

// Grad is weight * dloss * (softmax - onehot).
func (CrossEntropy) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	onlyFirst(b, CrossEntropy{}, dout)
	g := b.emit1(CrossEntropyGrad{}, n.In[0], n.In[1], n.In[2], n.Out[1], dout[0])
	return []*Value{g, nil, nil}
}

// Cost is one read of the logits.
func (CrossEntropy) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	c.FLOPs = 14 * float64(in[0].Shape.Elems())
	return c
}

// Autocast reads the logits in any format.
func (c CrossEntropy) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), c }

// CrossEntropyGrad is the gradient of the logits. Operands: logits, labels,
// weights, lse, dloss (scalar).
type CrossEntropyGrad struct{}

// Name is "cross_entropy_grad".
func (CrossEntropyGrad) Name() string { return "cross_entropy_grad" }

// Infer returns the type of the logits.
func (CrossEntropyGrad) Infer(in []Type) ([]Type, error) {
	if err := want(in, 5); err != nil {
		return nil, err
	}
	out, err := CrossEntropy{}.Infer(in[:3])
	if err != nil {
		return nil, err
	}
	if !in[3].Equal(out[1]) || !in[4].Equal(out[0]) {
		return nil, fmt.Errorf("lse and dloss are %v, want %v and %v", in[3:], out[1], out[0])
	}
	return []Type{in[0]}, nil
}

// Grad: second derivatives are not provided.
func (c CrossEntropyGrad) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, c) }

// Cost is one pass over the logits.
func (CrossEntropyGrad) Cost(in, out []Type) Cost { return traffic(in, out, 16) }

// Autocast reads the logits in any format.
func (c CrossEntropyGrad) Autocast(in []Type, _ DType) ([]DType, Op) {
	return make([]DType, len(in)), c
}

// InplaceOperands: the gradient may overwrite the logits.
func (CrossEntropyGrad) InplaceOperands(*Node) []int { return []int{0} }

// CrossEntropy is the weighted sum of negative log-likelihoods; see [CrossEntropy].
func (b *Builder) CrossEntropy(logits, labels, weights *Value) *Value {
	return b.emit1(CrossEntropy{}, logits, labels, weights)
}

// LinearCrossEntropy is CrossEntropy of h w^T without ever storing all logits: rows are processed
// Chunk at a time, with logits in float32. Operands: h [N, D], w [V, D], labels I32 [N], weights
// F32 [N]. Results: the F32 loss, the log-sum-exp [N], and the scratch F32 [Chunk, V] that holds
// one chunk's logits.
type LinearCrossEntropy struct {
	Chunk int
	TF32  bool // see [TF32Rule]
	// Exponentials says that the matmul also sums up its results, so that no logits are kept:
	// there is no scratch. In a gradient it holds their exponentials instead, relative to the
	// greatest of some neighbors, in the format of the factors; rows take multiples of 16 bytes.
	Exponentials bool
}

// Name is "linear_cross_entropy".
func (LinearCrossEntropy) Name() string { return "linear_cross_entropy" }

// Infer checks the operands.
func (l LinearCrossEntropy) Infer(in []Type) ([]Type, error) {
	if len(in) != 4 || len(in[0].Shape) != 2 || len(in[1].Shape) != 2 || in[0].Shape[1] != in[1].Shape[1] {
		return nil, fmt.Errorf("wants h [N, D], w [V, D], labels [N] and weights [N], got %v", in)
	}
	if err := reals(in[:2]...); err != nil {
		return nil, err
	}
	n := in[0].Shape[0]
	if !in[2].Equal(T(I32, n)) || !in[3].Equal(T(F32, n)) {
		return nil, fmt.Errorf("h %v wants labels i32[%d] and weights f32[%d], got %v", in[0], n, n, in[2:4])
	}
	if l.Chunk < 1 || l.Chunk > n {
		return nil, fmt.Errorf("chunk is %d, want 1..%d", l.Chunk, n)
	}
	out := []Type{T(F32), T(F32, n)}
	if !l.Exponentials {
		out = append(out, T(F32, l.Chunk, in[1].Shape[0]))
	}
	return out, nil
}

// LossScratch is the type of the scratch of a gradient that keeps exponentials, for h and w of
// these types.
func LossScratch(chunk int, h, w Type) Type {
	d := h.DType
	if w.DType != d {
		d = F32
	}
	piece := int(16 / d.Size())
	return T(d, chunk, (w.Shape[0]+piece-1)/piece*piece)
}

// Grad recomputes the logits chunk by chunk. (The simplify pass merges it with the
// forward operation if the loss's gradient is known beforehand, which saves the second
// matmul.)
func (l LinearCrossEntropy) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	onlyFirst(b, l, dout)
	op := LinearCrossEntropyGrad{Chunk: l.Chunk, Frozen: n.In[1].State != nil && n.In[1].State.Role == Frozen}
	g := b.Emit(op, append(append([]*Value{}, n.In...), dout[0])...)
	if op.Frozen {
		return []*Value{g[1], nil, nil, nil}
	}
	return []*Value{g[1], g[2], nil, nil}
}

// Cost is one matmul.
func (l LinearCrossEntropy) Cost(in, out []Type) Cost {
	size := F32.Size()
	if l.Exponentials {
		size = 0
	}
	return linearCECost(in, out, 1, size)
}

// linearCECost is the cost with a number of matmuls and the size of what is kept of a logit.
func linearCECost(in, out []Type, products float64, size int64) Cost {
	c := traffic(in, out, 0)
	n, d, v := in[0].Shape[0], in[0].Shape[1], in[1].Shape[0]
	c.MatrixFLOPs = products * 2 * float64(n) * float64(d) * float64(v)
	c.FLOPs = c.MatrixFLOPs + 14*float64(n)*float64(v)
	// What is kept of a chunk is written and read once more.
	c.Bytes += 2 * float64(size) * float64(n) * float64(v)
	return c
}

// Autocast multiplies in the 16-bit format.
func (l LinearCrossEntropy) Autocast(in []Type, compute DType) ([]DType, Op) {
	want := make([]DType, len(in))
	want[0], want[1] = compute, compute
	return want, l
}

// LinearCrossEntropyGrad computes the loss of LinearCrossEntropy and its gradients in one
// sweep over the chunks. Operands: h, w, labels, weights, dloss (scalar), and optionally
// a state of the type of dw that dw is added to in place. Results: the F32 loss, dh, the
// F32 dw, and the scratch. A frozen w has no dw, neither as a result nor to add to.
type LinearCrossEntropyGrad struct {
	Chunk        int
	Frozen       bool
	TF32         bool // see [TF32Rule]
	Exponentials bool // see [LinearCrossEntropy]
}

// Name is "linear_cross_entropy_grad".
func (LinearCrossEntropyGrad) Name() string { return "linear_cross_entropy_grad" }

// Infer returns the loss and the operands' gradients.
func (l LinearCrossEntropyGrad) Infer(in []Type) ([]Type, error) {
	if len(in) != 6 || l.Frozen {
		if err := want(in, 5); err != nil {
			return nil, err
		}
	}
	out, err := LinearCrossEntropy{Chunk: l.Chunk}.Infer(in[:4])
	if err != nil {
		return nil, err
	}
	if !in[4].Equal(out[0]) {
		return nil, fmt.Errorf("dloss is %v, want %v", in[4], out[0])
	}
	scratch := out[2]
	if l.Exponentials {
		scratch = LossScratch(l.Chunk, in[0], in[1])
	}
	if l.Frozen {
		return []Type{out[0], in[0], scratch}, nil
	}
	dw := in[1].With(F32)
	if len(in) == 6 && !in[5].Equal(dw) {
		return nil, fmt.Errorf("adds dw to %v, want %v", in[5], dw)
	}
	return []Type{out[0], in[0], dw, scratch}, nil
}

// Aliases: dw is the sixth operand, if there is one.
func (l LinearCrossEntropyGrad) Aliases(operands int) []Alias {
	if operands == 6 {
		return []Alias{{2, 5}}
	}
	return nil
}

// Grad: second derivatives are not provided.
func (l LinearCrossEntropyGrad) Grad(b *Builder, _ *Node, _ []*Value) []*Value {
	return noSecond(b, l)
}

// Cost is three matmuls; each chunk after the first reads w again and adds to dw. Without
// dw there are two.
func (l LinearCrossEntropyGrad) Cost(in, out []Type) Cost {
	again := float64((in[0].Shape[0]+l.Chunk-1)/l.Chunk - 1)
	size := out[len(out)-1].DType.Size()
	if l.Frozen {
		c := linearCECost(in, out, 2, size)
		c.Bytes += again * float64(in[1].Bytes())
		return c
	}
	c := linearCECost(in, out, 3, size)
	c.Bytes += again * float64(in[1].Bytes()+2*out[2].Bytes())
	return c
}

// Autocast multiplies in the 16-bit format; dw is F32.
func (l LinearCrossEntropyGrad) Autocast(in []Type, compute DType) ([]DType, Op) {
	want := make([]DType, len(in))
	want[0], want[1] = compute, compute
	return want, l
}

// LinearCrossEntropy is the loss of the logits h w^T, chunk rows at a time (0: all at once).
func (b *Builder) LinearCrossEntropy(h, w, labels, weights *Value, chunk int) *Value {
	n := h.Shape()[0]
	if chunk <= 0 || chunk > n {
		chunk = n
	}
	return b.emit1(LinearCrossEntropy{Chunk: chunk}, h, w, labels, weights)
}
