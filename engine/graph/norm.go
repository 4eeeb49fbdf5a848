package graph

import "fmt"

// LayerNorm normalizes rows: y = (x - mean)/sqrt(var + Eps) * gamma + beta over
// the last dimension, var the biased variance (Ba et al. 2016). With RMS it is
// y = x/sqrt(mean(x^2) + Eps) * gamma (Zhang and Sennrich 2019). Operands: x
// [..., D], gamma [D], and beta [D] unless RMS. Results: y, and per row the F32
// mean (0 with RMS, which subtracts none) and 1/sqrt(var + Eps).
type LayerNorm struct {
	Eps float64
	RMS bool
}

// Name is "layer_norm" or "rms_norm".
func (l LayerNorm) Name() string {
	if l.RMS {
		return "rms_norm"
	}
	return "layer_norm"
}

// Infer adds the two statistics.
func (l LayerNorm) Infer(in []Type) ([]Type, error) {
	n := 3
	if l.RMS {
		n = 2
	}
	if err := want(in, n); err != nil {
		return nil, err
	}
	if len(in[0].Shape) == 0 {
		return nil, fmt.Errorf("normalizes rows, got the scalar %v", in[0])
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	d := in[0].Shape.Last()
	for _, t := range in[1:] {
		if !t.Equal(T(F32, d)) {
			return nil, fmt.Errorf("x is %v, so scale and shift are f32[%d]; got %v", in[0], d, t)
		}
	}
	rows := in[0].Shape[:len(in[0].Shape)-1].Clone()
	return []Type{in[0], {F32, rows}, {F32, rows.Clone()}}, nil
}

// Grad is one operation for all operands.
func (l LayerNorm) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	onlyFirst(b, l, dout)
	g := b.Emit(LayerNormGrad(l), dout[0], n.In[0], n.In[1], n.Out[1], n.Out[2])
	if l.RMS {
		return []*Value{g[0], g[1]}
	}
	return []*Value{g[0], g[1], g[2]}
}

// Cost is one pass over memory.
func (LayerNorm) Cost(in, out []Type) Cost { return traffic(in, out, 8) }

// Autocast takes any format and normalizes in float32.
func (l LayerNorm) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), l }

// LayerNormGrad is the gradient of LayerNorm. Operands: dy, x, gamma, mean, rstd, and
// optionally a tensor of the type of dx that is added to dx after dx is rounded to its
// format: the gradient that bypasses a residual branch. Results: dx, and F32 dgamma and
// dbeta (no dbeta with RMS).
type LayerNormGrad struct {
	Eps float64
	RMS bool
}

// Name is "layer_norm_grad" or "rms_norm_grad".
func (l LayerNormGrad) Name() string { return LayerNorm(l).Name() + "_grad" }

// Infer returns the operands' shapes.
func (l LayerNormGrad) Infer(in []Type) ([]Type, error) {
	if len(in) != 6 {
		if err := want(in, 5); err != nil {
			return nil, err
		}
	}
	dy, x, gamma, mean, rstd := in[0].Shape, in[1].Shape, in[2].Shape, in[3].Shape, in[4].Shape
	if len(x) == 0 || !dy.Equal(x) || !gamma.Equal(Shape{x.Last()}) || !mean.Equal(x[:len(x)-1]) || !rstd.Equal(mean) {
		return nil, fmt.Errorf("dy, x, scale, mean and 1/deviation %v do not fit", in)
	}
	if len(in) == 6 && !in[5].Equal(in[1]) {
		return nil, fmt.Errorf("adds %v to dx, want %v", in[5], in[1])
	}
	if err := full(in[2:5]...); err != nil {
		return nil, err
	}
	if err := reals(in[:2]...); err != nil {
		return nil, err
	}
	g := Type{F32, gamma}
	if l.RMS {
		return []Type{in[1], g}, nil
	}
	return []Type{in[1], g, g}, nil
}

// Grad: second derivatives are not provided.
func (l LayerNormGrad) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, l) }

// Cost is one pass over memory.
func (LayerNormGrad) Cost(in, out []Type) Cost { return traffic(in, out, 16) }

// Autocast takes any format and computes in float32.
func (l LayerNormGrad) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), l }

// InplaceOperands: dx may overwrite dy.
func (l LayerNormGrad) InplaceOperands(n *Node) []int {
	if n.In[0].Type.Equal(n.Out[0].Type) {
		return []int{0}
	}
	return nil
}

func noSecond(b *Builder, op Op) []*Value {
	b.Failf("%s: second derivatives are not provided", op.Name())
	return nil
}

// LayerNorm normalizes the rows of x; see [LayerNorm].
func (b *Builder) LayerNorm(x, gamma, beta *Value, eps float64) *Value {
	return b.emit1(LayerNorm{Eps: eps}, x, gamma, beta)
}

// RMSNorm scales the rows of x to unit mean square; see [LayerNorm].
func (b *Builder) RMSNorm(x, gamma *Value, eps float64) *Value {
	return b.emit1(LayerNorm{Eps: eps, RMS: true}, x, gamma)
}

// Softmax is e^(x-max)/sum over the last dimension.
type Softmax struct{}

// Name is "softmax".
func (Softmax) Name() string { return "softmax" }

// Infer keeps the shape.
func (Softmax) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if err := full(in...); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

// Grad: dx = y*(dy - sum(dy*y)).
func (Softmax) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	return []*Value{b.emit1(SoftmaxGrad{}, n.Out[0], dout[0])}
}

// Cost is one pass over memory.
func (Softmax) Cost(in, out []Type) Cost { return traffic(in, out, 16) }

// InplaceOperands: y may overwrite x.
func (Softmax) InplaceOperands(*Node) []int { return []int{0} }

// SoftmaxGrad is the gradient of Softmax. Operands: y, dy.
type SoftmaxGrad struct{}

// Name is "softmax_grad".
func (SoftmaxGrad) Name() string { return "softmax_grad" }

// Infer keeps the shape.
func (SoftmaxGrad) Infer(in []Type) ([]Type, error) {
	if len(in) != 2 || !in[0].Shape.Equal(in[1].Shape) {
		return nil, fmt.Errorf("wants y and dy of one shape, got %v", in)
	}
	if err := full(in...); err != nil {
		return nil, err
	}
	return []Type{in[0]}, nil
}

// Grad: second derivatives are not provided.
func (s SoftmaxGrad) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, s) }

// Cost is one pass over memory.
func (SoftmaxGrad) Cost(in, out []Type) Cost { return traffic(in, out, 4) }

// InplaceOperands: dx may overwrite dy.
func (SoftmaxGrad) InplaceOperands(*Node) []int { return []int{1} }

// Softmax normalizes e^x over the last dimension.
func (b *Builder) Softmax(x *Value) *Value { return b.emit1(Softmax{}, x) }
