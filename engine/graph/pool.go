package graph

import "fmt"

// PoolKind is how the elements of a window are combined.
type PoolKind uint8

// The kinds of pooling.
const (
	PoolMax PoolKind = iota
	PoolAverage
)

// Pool2D combines windows of images x [B,H,W,C], each channel by itself:
// element (p, q) of the result [B,OH,OW,C] is the maximum or the average of the
// Kernel window whose first row and column are p*Stride0-top, q*Stride1-left. The maximum does
// not look outside the image; the average counts zeros there, as torch.nn.AvgPool2d does.
//
// With a Body the operands are its inputs, which broadcast to images [...,H,W,C], and x
// is its result, computed as windows are read: the fuse pass makes it, after differentiation.
type Pool2D struct {
	Kind           PoolKind
	Kernel, Stride [2]int // down, across
	Pad            [4]int // rows above, below; columns left, right
	Body           *Body
}

// Name is "max_pool2d" or "avg_pool2d".
func (p Pool2D) Name() string { return [...]string{"max_pool2d", "avg_pool2d"}[p.Kind] }

// conv returns the geometry of the windows.
func (p Pool2D) conv() Conv2D {
	return Conv2D{Stride: p.Stride, Dilation: [2]int{1, 1}, Pad: p.Pad, Groups: 1}
}

// Divides reports whether the windows divide images of h x w between them.
func (p Pool2D) Divides(h, w int) bool {
	return p.Pad == [4]int{} && p.Kernel == p.Stride && min(p.Kernel[0], p.Kernel[1]) > 0 && h%p.Kernel[0] == 0 && w%p.Kernel[1] == 0
}

// images is the type of the images of which in are the operands.
func (p Pool2D) images(in []Type) (Type, error) {
	if p.Body == nil {
		if err := want(in, 1); err != nil {
			return Type{}, err
		}
		if len(in[0].Shape) != 4 {
			return Type{}, fmt.Errorf("wants images [B,H,W,C], got %v", in[0])
		}
		return in[0], nil
	}
	x, err := p.Body.infer(in)
	if err != nil {
		return Type{}, err
	}
	s := x[0].Shape
	if len(x) != 1 || len(s) < 4 {
		return Type{}, fmt.Errorf("the body makes %v: want images [...,H,W,C] alone", x)
	}
	hwc := s[len(s)-3:]
	if !p.Divides(hwc[0], hwc[1]) || p.Kind != PoolMax {
		return Type{}, fmt.Errorf("with a body, windows have a maximum and divide images of %dx%d, not kernel %v, stride %v, padding %v", hwc[0], hwc[1], p.Kernel, p.Stride, p.Pad)
	}
	return T(x[0].DType, append([]int{int(s.Elems() / hwc.Elems())}, hwc...)...), nil
}

// Infer returns [B,OH,OW,C].
func (p Pool2D) Infer(in []Type) ([]Type, error) {
	x, err := p.images(in)
	if err != nil {
		return nil, err
	}
	if err := reals(x); err != nil {
		return nil, err
	}
	if min(p.Kernel[0], p.Kernel[1], p.Stride[0], p.Stride[1]) < 1 {
		return nil, fmt.Errorf("kernels and strides must be at least 1, got kernel %v and stride %v", p.Kernel, p.Stride)
	}
	// This way every window contains an element of the image.
	if min(p.Pad[0], p.Pad[1], p.Pad[2], p.Pad[3]) < 0 || max(p.Pad[0], p.Pad[1]) >= p.Kernel[0] || max(p.Pad[2], p.Pad[3]) >= p.Kernel[1] {
		return nil, fmt.Errorf("padding must be at least 0 and below the kernel %v, got %v", p.Kernel, p.Pad)
	}
	s := x.Shape
	oh, ow := p.conv().Size(0, s[1], p.Kernel[0]), p.conv().Size(1, s[2], p.Kernel[1])
	if oh < 1 || ow < 1 {
		return nil, fmt.Errorf("a window of %v does not fit into %v with padding %v", p.Kernel, x, p.Pad)
	}
	return []Type{T(x.DType, s[0], oh, ow, s[3])}, nil
}

// Grad gives each window's gradient to its maximum, or to all its elements.
func (p Pool2D) Grad(b *Builder, n *Node, dout []*Value) []*Value {
	if p.Body != nil {
		return noSecond(b, p)
	}
	in := []*Value{dout[0]}
	if p.Kind == PoolMax {
		in = append(in, n.In[0], n.Out[0])
	}
	s := n.In[0].Shape()
	return []*Value{b.emit1(Pool2DGrad{Pool: p, H: s[1], W: s[2]}, in...)}
}

// Cost is one operation for each element of each window, besides the body.
func (p Pool2D) Cost(in, out []Type) Cost {
	each := 1.0
	if p.Body != nil {
		each += p.Body.flops()
	}
	return traffic(in, out, each*float64(p.Kernel[0]*p.Kernel[1]))
}

// Autocast takes images in any format.
func (p Pool2D) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), p }

// Pool2DGrad is the gradient of Pool2D for images of H x W. Operands: dy,
// and for the maximum x and y: the gradient of a window goes to the first of
// its elements, row by row, that is not less than the maximum. With a Body its inputs
// take the place of x, whose gradient is the result.
type Pool2DGrad struct {
	Pool Pool2D
	H, W int
}

// Name is "max_pool2d_grad" or "avg_pool2d_grad".
func (p Pool2DGrad) Name() string { return p.Pool.Name() + "_grad" }

// Infer returns the image's type.
func (p Pool2DGrad) Infer(in []Type) ([]Type, error) {
	n := 1
	if p.Pool.Kind == PoolMax {
		n = 3
	}
	if p.Pool.Body != nil {
		n = 2 + p.Pool.Body.Inputs
	}
	if err := want(in, n); err != nil {
		return nil, err
	}
	dy := in[0].Shape
	if len(dy) != 4 {
		return nil, fmt.Errorf("wants dy [B,OH,OW,C], got %v", in[0])
	}
	x := T(in[0].DType, dy[0], p.H, p.W, dy[3])
	whole := p.Pool
	whole.Body = nil
	y, err := whole.Infer([]Type{x})
	if err != nil {
		return nil, err
	}
	if !y[0].Shape.Equal(dy) {
		return nil, fmt.Errorf("images of %dx%d give %v, but dy is %v", p.H, p.W, y[0].Shape, in[0])
	}
	if n == 1 {
		return []Type{x}, nil
	}
	of, err := p.Pool.images(in[1 : n-1])
	if err != nil {
		return nil, err
	}
	if err := reals(of, in[n-1]); err != nil {
		return nil, err
	}
	if !of.Shape.Equal(x.Shape) || !in[n-1].Shape.Equal(dy) {
		return nil, fmt.Errorf("x and y are %v and %v, want %v and %v", of, in[n-1], x.Shape, dy)
	}
	return []Type{x}, nil
}

// Grad: averaging is linear; the maximum has no second derivatives here.
func (p Pool2DGrad) Grad(b *Builder, _ *Node, dout []*Value) []*Value {
	if p.Pool.Kind == PoolMax {
		return noSecond(b, p)
	}
	return []*Value{b.emit1(p.Pool, dout[0])}
}

// Cost is a few operations for each element of each window.
func (p Pool2DGrad) Cost(in, out []Type) Cost {
	each := 4.0
	if p.Pool.Body != nil {
		each += p.Pool.Body.flops()
	}
	c := traffic(in, out, 0)
	c.FLOPs = each * float64(in[0].Shape.Elems()) * float64(p.Pool.Kernel[0]*p.Pool.Kernel[1])
	return c
}

// Autocast takes operands in any format.
func (p Pool2DGrad) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), p }

// MaxPool2D is the maximum of kernel x kernel windows, stride apart, of images x
// [B,H,W,C] with pad empty rows and columns around them.
func (b *Builder) MaxPool2D(x *Value, kernel, stride, pad int) *Value {
	return b.pool(PoolMax, x, kernel, stride, pad)
}

// AvgPool2D is the average of the windows of [Builder.MaxPool2D], padding counted as 0.
func (b *Builder) AvgPool2D(x *Value, kernel, stride, pad int) *Value {
	return b.pool(PoolAverage, x, kernel, stride, pad)
}

func (b *Builder) pool(kind PoolKind, x *Value, kernel, stride, pad int) *Value {
	return b.emit1(Pool2D{Kind: kind, Kernel: [2]int{kernel, kernel}, Stride: [2]int{stride, stride}, Pad: [4]int{pad, pad, pad, pad}}, x)
}

// GlobalAvgPool2D averages each channel of images [B,H,W,C] to [B,C].
func (b *Builder) GlobalAvgPool2D(x *Value) *Value { return b.Mean(x, 1, 2) }
