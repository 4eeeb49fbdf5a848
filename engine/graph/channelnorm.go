package graph

import "fmt"

// ChannelNorm normalizes channels, the last dimension of x [B,...,C]:
//
//	y = (x - mean)/sqrt(var + Eps) * gamma + beta
//
// With Groups 0 it is batch normalization in training (Ioffe and Szegedy 2015): mean and
// the biased var of each channel over all rows, [C]. With Groups G it is group
// normalization (Wu and He 2018): mean and var of each row of the batch over all its
// elements in C/G neighboring channels, [B,G]. Operands: x, F32 gamma [C] and beta [C].
// Results: y and the F32 mean and var. With Given the mean and var are operands instead,
// so that y can be computed again, even for some rows only.
type ChannelNorm struct {
	Eps    float64
	Groups int
	Given  bool
}

// Name is "batch_norm" or "group_norm".
func (c ChannelNorm) Name() string {
	if c.Groups == 0 {
		return "batch_norm"
	}
	return "group_norm"
}

// rowsOfChannels refuses an x that is not [B,...,C] of real numbers.
func rowsOfChannels(x Type) error {
	if len(x.Shape) < 2 {
		return fmt.Errorf("wants x [B,...,C], got %v", x)
	}
	return reals(x)
}

// stats is the type of the statistics of x.
func (c ChannelNorm) stats(x Type) Type {
	if c.Groups == 0 {
		return T(F32, x.Shape.Last())
	}
	return T(F32, x.Shape[0], c.Groups)
}

// Infer adds the two statistics.
func (c ChannelNorm) Infer(in []Type) ([]Type, error) {
	n := 3
	if c.Given {
		n = 5
	}
	if err := want(in, n); err != nil {
		return nil, err
	}
	if err := rowsOfChannels(in[0]); err != nil {
		return nil, err
	}
	d := in[0].Shape.Last()
	for _, t := range in[1:3] {
		if !t.Equal(T(F32, d)) {
			return nil, fmt.Errorf("x is %v, so scale and shift are f32[%d]; got %v", in[0], d, t)
		}
	}
	if c.Groups < 0 || c.Groups > 0 && d%c.Groups != 0 {
		return nil, fmt.Errorf("%d channels do not divide into %d groups", d, c.Groups)
	}
	stats := c.stats(in[0])
	if c.Given {
		if !in[3].Equal(stats) || !in[4].Equal(stats) {
			return nil, fmt.Errorf("mean and variance of x %v are %v, got %v and %v", in[0], stats, in[3], in[4])
		}
		return []Type{in[0]}, nil
	}
	return []Type{in[0], stats, stats}, nil
}

// Grad is one operation for all operands.
func (c ChannelNorm) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	if c.Given {
		return noSecond(b, c) // a recomputation: differentiation precedes it
	}
	onlyFirst(b, c, dout)
	return b.Emit(ChannelNormGrad(c), dout[0], n.In[0], n.In[1], n.Out[1], n.Out[2])
}

// Cost is two passes over x.
func (c ChannelNorm) Cost(in, out []Type) Cost {
	if c.Given {
		return traffic(in, out, 4)
	}
	t := traffic(in, out, 8)
	t.Bytes += float64(in[0].Bytes())
	return t
}

// InplaceOperands: y may overwrite x.
func (ChannelNorm) InplaceOperands(*Node) []int { return []int{0} }

// Autocast takes any format and normalizes in float32.
func (c ChannelNorm) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), c }

// BatchStats computes the statistics of batch normalization alone, those of [ChannelNorm] with
// Groups 0: the F32 mean and var of each channel of x [B,...,C] over all rows. The fuse pass
// makes it for devices that normalize in elementwise loops.
type BatchStats struct{}

// Name is "batch_stats".
func (BatchStats) Name() string { return "batch_stats" }

// Infer returns two statistics of each channel.
func (BatchStats) Infer(in []Type) ([]Type, error) {
	if err := want(in, 1); err != nil {
		return nil, err
	}
	if err := rowsOfChannels(in[0]); err != nil {
		return nil, err
	}
	stats := ChannelNorm{}.stats(in[0])
	return []Type{stats, stats}, nil
}

// Grad: it is made after differentiation.
func (s BatchStats) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, s) }

// Cost is one pass over x.
func (BatchStats) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	c.FLOPs = 4 * float64(in[0].Shape.Elems())
	return c
}

// ChannelNormGrad is the gradient of ChannelNorm. Operands: dy, x, gamma, mean
// and var. Results: dx, and F32 dgamma and dbeta.
type ChannelNormGrad ChannelNorm

// Name is "batch_norm_grad" or "group_norm_grad".
func (c ChannelNormGrad) Name() string { return ChannelNorm(c).Name() + "_grad" }

// Infer returns the operands' types.
func (c ChannelNormGrad) Infer(in []Type) ([]Type, error) {
	if err := want(in, 5); err != nil {
		return nil, err
	}
	out, err := ChannelNorm(c).Infer([]Type{in[1], in[2], in[2]})
	if err != nil {
		return nil, err
	}
	if !in[0].Shape.Equal(in[1].Shape) || !in[3].Equal(out[1]) || !in[4].Equal(out[1]) {
		return nil, fmt.Errorf("dy, mean and variance are %v, %v and %v; x %v wants its own shape and %v", in[0], in[3], in[4], in[1], out[1])
	}
	if err := reals(in[0]); err != nil {
		return nil, err
	}
	return []Type{in[1], in[2], in[2]}, nil
}

// Grad: second derivatives are not provided.
func (c ChannelNormGrad) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, c) }

// Cost is two passes over x and dy.
func (c ChannelNormGrad) Cost(in, out []Type) Cost {
	t := traffic(in, out, 16)
	t.Bytes += float64(in[0].Bytes() + in[1].Bytes())
	return t
}

// InplaceOperands: dx may overwrite dy.
func (ChannelNormGrad) InplaceOperands(n *Node) []int {
	if n.In[0].Type.Equal(n.Out[0].Type) {
		return []int{0}
	}
	return nil
}

// Autocast takes any format and computes in float32.
func (c ChannelNormGrad) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), c }

// RunningStats moves the running statistics of batch normalization, two states,
// toward those of a batch of Rows rows:
//
//	mean += Momentum*(batchMean - mean)
//	var  += Momentum*(batchVar*Rows/(Rows-1) - var)
//
// Operands: the states mean and var [C], and the batch's. It is never recomputed: that
// would move them twice.
type RunningStats struct {
	Momentum float64
	Rows     int
}

// Name is "running_stats".
func (RunningStats) Name() string { return "running_stats" }

// Infer keeps the states' types.
func (r RunningStats) Infer(in []Type) ([]Type, error) {
	if err := want(in, 4); err != nil {
		return nil, err
	}
	if err := full(in...); err != nil {
		return nil, err
	}
	for _, t := range in[1:] {
		if len(t.Shape) != 1 || !t.Equal(in[0]) {
			return nil, fmt.Errorf("running and batch statistics are %v, want four of one length", in)
		}
	}
	if r.Rows < 2 || !(r.Momentum > 0 && r.Momentum <= 1) {
		return nil, fmt.Errorf("wants at least 2 rows and a momentum in (0, 1], got %d and %v", r.Rows, r.Momentum)
	}
	return []Type{in[0], in[1]}, nil
}

// Aliases: both states are written in place.
func (RunningStats) Aliases(int) []Alias { return []Alias{{0, 0}, {1, 1}} }

// Grad: states are not differentiated through.
func (RunningStats) Grad(_ *Builder, n *Node, _ []*Value) []*Value { return make([]*Value, len(n.In)) }

// Cost is one pass over memory.
func (RunningStats) Cost(in, out []Type) Cost { return traffic(in, out, 3) }

// BatchNorm normalizes x [B,...,C] by the statistics of the batch and moves
// the running ones, F32 states of length C.
func (b *Builder) BatchNorm(x, gamma, beta, mean, variance *Value, momentum, eps float64) *Value {
	y := b.Emit(ChannelNorm{Eps: eps}, x, gamma, beta)
	b.Emit(RunningStats{Momentum: momentum, Rows: x.Shape().Rows()}, mean, variance, y[1], y[2])
	return y[0]
}

// BatchNormEval normalizes x [B,...,C] by running statistics.
func (b *Builder) BatchNormEval(x, gamma, beta, mean, variance *Value, eps float64) *Value {
	scale := b.Mul(gamma, b.fn(FnRsqrt, b.AddC(variance, eps)))
	shift := b.Sub(beta, b.Mul(mean, scale))
	return b.Add(b.Mul(x, scale), shift)
}

// GroupNorm normalizes x [B,...,C] in groups of channels.
func (b *Builder) GroupNorm(x, gamma, beta *Value, groups int, eps float64) *Value {
	if groups < 1 {
		b.Failf("group_norm: %d groups, want at least 1", groups)
	}
	return b.emit1(ChannelNorm{Eps: eps, Groups: groups}, x, gamma, beta)
}
