package cuda

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// counted is the number of elements of a picture; kernels count them in 32 bits.
func (l *lowering) counted(s graph.Shape) int {
	if s.Elems() > math.MaxUint32 {
		l.fail("images of %v: the pooling kernels index at most %d elements; use a smaller batch", s, math.MaxUint32)
	}
	return int(s.Elems())
}

// windows appends the geometry of pooling pictures x [B,H,W,C] into y.
func (p *params) windows(op graph.Pool2D, x, y graph.Shape) *params {
	return p.u32(x[1], x[2], x[3], y[1], y[2], op.Kernel[0], op.Kernel[1], op.Stride[0], op.Stride[1], op.Pad[0], op.Pad[2])
}

func (l *lowering) pool(n *graph.Node, op graph.Pool2D) {
	if op.Body != nil {
		l.pooled(n, op)
		return
	}
	x, y := n.In[0], n.Out[0]
	elems := l.counted(y.Shape())
	p := new(params).ptr(l.at(x)).ptr(l.at(y)).u32(elems).windows(op, x.Shape(), y.Shape())
	w := warps(elems)
	l.run(op.Name()+"_"+x.DType().String(), ceil(elems, 256), 256, p).does("warp", w).does("tap", w*op.Kernel[0]*op.Kernel[1]).moves(traffic(x, y))
}

func (l *lowering) poolGrad(n *graph.Node, op graph.Pool2DGrad) {
	if op.Pool.Body != nil {
		l.pooledGrad(n, op)
		return
	}
	dy, dx := n.In[0], n.Out[0]
	d, at := l.alike(n.In...)
	p := new(params)
	for _, a := range at {
		p.ptr(a)
	}
	elems, to := l.counted(dx.Shape()), l.at(dx)
	if d != dx.DType() {
		to = l.take(dx.Type.With(d).Bytes())
	}
	p.ptr(to).u32(elems).windows(op.Pool, dx.Shape(), dy.Shape())
	// Each element is in this many windows; for a maximum, half of a window's taps come before it on average.
	w := warps(elems)
	in := w * ceil(op.Pool.Kernel[0], op.Pool.Stride[0]) * ceil(op.Pool.Kernel[1], op.Pool.Stride[1])
	x := l.run(op.Name()+"_"+d.String(), ceil(elems, 256), 256, p).does("warp", w).does("window", in).moves(traffic(n.In...), traffic(dx))
	if len(n.In) > 1 {
		x.does("tap", in*op.Pool.Kernel[0]*op.Pool.Kernel[1])
	}
	l.narrowed(dx, d, to)
}
