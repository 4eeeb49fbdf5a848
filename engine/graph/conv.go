package graph

import "fmt"

// Conv2D is the cross-correlation that neural networks call convolution:
//
//	y[b,p,q,o] = sum over i, j, c of w[o,c,i,j] * x[b, p*Stride0+i*Dilation0-top, q*Stride1+j*Dilation1-left, g+c]
//
// with x 0 outside the image. Operands: x [B,H,W,C], channels last, and w
// [O,C/Groups,KH,KW] as torch.nn.Conv2d has it. Groups is 1, or with C = O =
// Groups each channel has a filter of its own (depthwise; g = o). Result:
// y [B,OH,OW,O]. Convolution over time is that of an image of one row; see
// [Builder.Conv1D].
type Conv2D struct {
	Stride, Dilation [2]int // down, across
	Pad              [4]int // rows above, below; columns left, right
	Groups           int
}

// Conv is a Conv2D of one group with the same stride and padding on all sides.
func Conv(stride, pad int) Conv2D {
	return Conv2D{Stride: [2]int{stride, stride}, Dilation: [2]int{1, 1}, Pad: [4]int{pad, pad, pad, pad}, Groups: 1}
}

// Name is "conv2d".
func (Conv2D) Name() string { return "conv2d" }

// Depthwise reports whether each channel has a filter of its own.
func (c Conv2D) Depthwise() bool { return c.Groups > 1 }

// Size is the extent of the result along direction d (0 down, 1 across) for an
// extent n of the image and k of the kernel; below 1 if nothing fits.
func (c Conv2D) Size(d, n, k int) int {
	n += c.Pad[2*d] + c.Pad[2*d+1] - c.Dilation[d]*(k-1) - 1
	if n < 0 {
		return 0
	}
	return n/c.Stride[d] + 1
}

// check checks the attributes and the types of the image and the weights.
func (c Conv2D) check(x, w Type) error {
	if len(x.Shape) != 4 || len(w.Shape) != 4 {
		return fmt.Errorf("wants x [B,H,W,C] and w [O,C/%d,KH,KW], got %v and %v", c.Groups, x, w)
	}
	if err := reals(x, w); err != nil {
		return err
	}
	if min(c.Stride[0], c.Stride[1], c.Dilation[0], c.Dilation[1], c.Groups) < 1 || min(c.Pad[0], c.Pad[1], c.Pad[2], c.Pad[3]) < 0 {
		return fmt.Errorf("strides, dilations and groups must be at least 1 and padding at least 0, got stride %v, dilation %v, groups %d and padding %v", c.Stride, c.Dilation, c.Groups, c.Pad)
	}
	in, out := x.Shape[3], w.Shape[0]
	if c.Groups > 1 && (c.Groups != in || in != out) {
		return fmt.Errorf("has %d groups for %d channels in and %d out: groups are 1, or as many as channels in and out", c.Groups, in, out)
	}
	if w.Shape[1]*c.Groups != in {
		return fmt.Errorf("x %v has %d channels, w %v is for %d", x, in, w, w.Shape[1]*c.Groups)
	}
	return nil
}

// Infer returns [B,OH,OW,O].
func (c Conv2D) Infer(in []Type) ([]Type, error) {
	if err := want(in, 2); err != nil {
		return nil, err
	}
	if err := c.check(in[0], in[1]); err != nil {
		return nil, err
	}
	x, w := in[0].Shape, in[1].Shape
	oh, ow := c.Size(0, x[1], w[2]), c.Size(1, x[2], w[3])
	if oh < 1 || ow < 1 {
		return nil, fmt.Errorf("the kernel [%d,%d] does not fit into the padded image of %v: padding %v, dilation %v", w[2], w[3], x, c.Pad, c.Dilation)
	}
	return []Type{T(in[0].DType, x[0], oh, ow, w[0])}, nil
}

// Grad is the adjoint in either operand.
func (c Conv2D) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	x, w := n.In[0].Shape(), n.In[1].Shape()
	return []*Value{
		b.emit1(Conv2DGradInput{Conv: c, H: x[1], W: x[2]}, dout[0], n.In[1]),
		b.emit1(Conv2DGradWeight{Conv: c, KH: w[2], KW: w[3]}, n.In[0], dout[0]),
	}
}

// flops of one matmul for results y by weights w.
func (c Conv2D) flops(y, w Shape) float64 {
	return 2 * float64(y.Elems()) * float64(w[1]*w[2]*w[3])
}

func (c Conv2D) cost(in, out []Type, y, w Shape) Cost {
	t := traffic(in, out, 0)
	t.FLOPs = c.flops(y, w)
	if !c.Depthwise() {
		t.MatrixFLOPs = t.FLOPs
	}
	return t
}

// Cost is one matmul, including the padding.
func (c Conv2D) Cost(in, out []Type) Cost { return c.cost(in, out, out[0].Shape, in[1].Shape) }

// Autocast multiplies in the 16-bit format.
func (c Conv2D) Autocast(_ []Type, compute DType) ([]DType, Op) { return []DType{compute, compute}, c }

// Conv2DGradInput is the adjoint of [Conv2D] in its image: the gradient [B,H,W,C]
// of the image, given a gradient dy [B,OH,OW,O] of the result. By itself it is the
// transposed convolution (torch.nn.ConvTranspose2d has the same weights, its input
// channels being O). Operands: dy and w.
type Conv2DGradInput struct {
	Conv Conv2D
	H, W int
}

// Name is "conv2d_grad_input".
func (Conv2DGradInput) Name() string { return "conv2d_grad_input" }

// Infer returns the image's type.
func (c Conv2DGradInput) Infer(in []Type) ([]Type, error) {
	if err := want(in, 2); err != nil {
		return nil, err
	}
	if len(in[0].Shape) != 4 || len(in[1].Shape) != 4 {
		return nil, fmt.Errorf("wants dy [B,OH,OW,O] and w [O,C/%d,KH,KW], got %v", c.Conv.Groups, in)
	}
	x := T(in[0].DType, in[0].Shape[0], c.H, c.W, in[1].Shape[1]*max(c.Conv.Groups, 1))
	y, err := c.Conv.Infer([]Type{x, in[1]})
	if err != nil {
		return nil, err
	}
	if !y[0].Shape.Equal(in[0].Shape) {
		return nil, fmt.Errorf("an image of %dx%d gives %v, but dy is %v", c.H, c.W, y[0].Shape, in[0])
	}
	return []Type{x}, nil
}

// Grad: the operation is linear in either operand.
func (c Conv2DGradInput) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	w := n.In[1].Shape()
	return []*Value{
		b.emit1(c.Conv, dout[0], n.In[1]),
		b.emit1(Conv2DGradWeight{Conv: c.Conv, KH: w[2], KW: w[3]}, dout[0], n.In[0]),
	}
}

// Cost is one matmul.
func (c Conv2DGradInput) Cost(in, out []Type) Cost {
	return c.Conv.cost(in, out, in[0].Shape, in[1].Shape)
}

// Autocast multiplies in the 16-bit format.
func (c Conv2DGradInput) Autocast(_ []Type, compute DType) ([]DType, Op) {
	return []DType{compute, compute}, c
}

// Conv2DGradWeight is the adjoint of [Conv2D] in its weights: the F32 gradient
// [O,C/Groups,KH,KW] for the image x and a gradient dy of the result.
// Operands: x and dy.
type Conv2DGradWeight struct {
	Conv   Conv2D
	KH, KW int
}

// Name is "conv2d_grad_weight".
func (Conv2DGradWeight) Name() string { return "conv2d_grad_weight" }

// Infer returns the weights' type.
func (c Conv2DGradWeight) Infer(in []Type) ([]Type, error) {
	if err := want(in, 2); err != nil {
		return nil, err
	}
	if len(in[0].Shape) != 4 || len(in[1].Shape) != 4 || c.Conv.Groups < 1 {
		return nil, fmt.Errorf("wants x [B,H,W,C] and dy [B,OH,OW,O] and at least one group, got %v", in)
	}
	if c.KH < 1 || c.KW < 1 {
		return nil, fmt.Errorf("a kernel of %dx%d has no elements", c.KH, c.KW)
	}
	w := T(F32, in[1].Shape[3], in[0].Shape[3]/c.Conv.Groups, c.KH, c.KW)
	y, err := c.Conv.Infer([]Type{in[0], w})
	if err != nil {
		return nil, err
	}
	if !y[0].Shape.Equal(in[1].Shape) {
		return nil, fmt.Errorf("a %dx%d kernel on %v gives %v, but dy is %v", c.KH, c.KW, in[0], y[0].Shape, in[1])
	}
	return []Type{w}, nil
}

// Grad: second derivatives are not provided.
func (c Conv2DGradWeight) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, c) }

// Cost is one matmul.
func (c Conv2DGradWeight) Cost(in, out []Type) Cost {
	return c.Conv.cost(in, out, in[1].Shape, out[0].Shape)
}

// Autocast multiplies in the 16-bit format; the result is F32.
func (c Conv2DGradWeight) Autocast(_ []Type, compute DType) ([]DType, Op) {
	return []DType{compute, compute}, c
}

// Conv2D convolves images x [B,H,W,C] with w, and adds bias [O] unless nil.
func (b *Builder) Conv2D(op Conv2D, x, w, bias *Value) *Value {
	y := b.emit1(op, x, w)
	if bias != nil {
		y = b.Add(y, bias)
	}
	return y
}

// Conv1D convolves x [B,T,C] over time with w [O,C/groups,K] and adds bias [O] unless
// nil; left and right are the zeros before and after x, (K-1)*dilation and 0 for a causal
// convolution.
func (b *Builder) Conv1D(x, w, bias *Value, stride, dilation, left, right, groups int) *Value {
	if len(x.Shape()) != 3 || len(w.Shape()) != 3 {
		b.Failf("conv1d: wants x [B,T,C] and w [O,C/%d,K], got %v and %v", groups, x.Type, w.Type)
	}
	s, k := x.Shape(), w.Shape()
	op := Conv2D{Stride: [2]int{1, stride}, Dilation: [2]int{1, dilation}, Pad: [4]int{0, 0, left, right}, Groups: groups}
	y := b.Conv2D(op, b.Reshape(x, s[0], 1, s[1], s[2]), b.Reshape(w, k[0], k[1], 1, k[2]), bias)
	return b.Reshape(y, s[0], y.Shape()[2], k[0])
}

// ConvTranspose2D is the transposed convolution of x [B,OH,OW,O] with w
// [O,C,KH,KW] to an image of h x w: the adjoint of op.
func (b *Builder) ConvTranspose2D(op Conv2D, x, weight, bias *Value, h, w int) *Value {
	y := b.emit1(Conv2DGradInput{Conv: op, H: h, W: w}, x, weight)
	if bias != nil {
		y = b.Add(y, bias)
	}
	return y
}
