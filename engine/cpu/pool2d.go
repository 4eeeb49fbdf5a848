package cpu

import (
	"errors"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// span returns the part [from, to) of a window of k elements from at on that lies within
// n.
func span(at, k, n int) (from, to int) { return max(at, 0), min(at+k, n) }

// quarters reports whether images like x are pooled by maxima over adjacent 2x2 blocks,
// and nothing needs to be converted: the common case, for which there is vector code.
func quarters(p graph.Pool2D, x graph.Type) bool {
	two := [2]int{2, 2}
	s := x.Shape
	return p.Kind == graph.PoolMax && p.Kernel == two && p.Stride == two && p.Pad == [4]int{} && x.DType != graph.F16 &&
		s[1]%2 == 0 && s[2]%2 == 0 && s[3]%simd.PoolChannels == 0
}

// eachQuarters calls fn, in tasks, for the rows of pooled images of shape s: with the
// elements of a row, and of the two rows that it comes from.
func eachQuarters(s graph.Shape, fn func(at, to, k0, k1, k2 int)) []phase {
	rows, wide := s[0]*s[1], s[2]*s[3]
	tasks, per := chunks(rows, max(1, grain/(4*wide)))
	return []phase{{tasks, func(task, _ int) {
		for i := task * per; i < min((task+1)*per, rows); i++ {
			at, to := i*wide, (i+1)*wide
			fn(at, to, 4*at, 4*at+2*wide, 4*to)
		}
	}}}
}

// maxQuarters is pool2d for the case of quarters.
func (c *compiler) maxQuarters(n *graph.Node) ([]phase, error) {
	x, y := c.ref(n.In[0]), c.ref(n.Out[0])
	s := n.Out[0].Shape()
	ch := s[3]
	return eachQuarters(s, func(at, to, k0, k1, k2 int) {
		if n.In[0].DType() == graph.F32 {
			simd.MaxPool(y.f32()[at:to], x.f32()[k0:k1], x.f32()[k1:k2], ch)
		} else {
			simd.MaxPoolBF16(y.u16()[at:to], x.u16()[k0:k1], x.u16()[k1:k2], ch)
		}
	}), nil
}

// maxQuartersGrad is the gradient of maxQuarters.
func (c *compiler) maxQuartersGrad(n *graph.Node) ([]phase, error) {
	dy, x, y, dx := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.In[2]), c.ref(n.Out[0])
	s := n.In[0].Shape()
	ch := s[3]
	return eachQuarters(s, func(at, to, k0, k1, k2 int) {
		if n.In[0].DType() == graph.F32 {
			simd.MaxPoolGrad(dx.f32()[k0:k1], dx.f32()[k1:k2], dy.f32()[at:to], y.f32()[at:to], x.f32()[k0:k1], x.f32()[k1:k2], ch)
		} else {
			simd.MaxPoolGradBF16(dx.u16()[k0:k1], dx.u16()[k1:k2], dy.u16()[at:to], y.u16()[at:to], x.u16()[k0:k1], x.u16()[k1:k2], ch)
		}
	}), nil
}

// pool2d combines first the rows of a window, whole images wide, then its columns.
// errPoolBody refuses what only cards do.
var errPoolBody = errors.New("elementwise work on what pools read is done by cards, not by processors")

func (c *compiler) pool2d(n *graph.Node, op graph.Pool2D) ([]phase, error) {
	if op.Body != nil {
		return nil, errPoolBody
	}
	if quarters(op, n.In[0].Type) {
		return c.maxQuarters(n)
	}
	x, y := c.ref(n.In[0]), c.ref(n.Out[0])
	s, out, d := n.In[0].Shape(), n.Out[0].Shape(), n.In[0].DType()
	h, w, ch, oh, ow := s[1], s[2], s[3], out[1], out[2]
	combine, scale := simd.Max, float32(1)
	if op.Kind == graph.PoolAverage {
		combine, scale = simd.Add, 1/float32(op.Kernel[0]*op.Kernel[1])
	}
	code := c.code
	c.need(0, (2*w+ow)*ch*4)
	rows := s[0] * oh
	tasks, per := chunks(rows, max(1, grain/(w*ch*op.Kernel[0])))
	return []phase{{tasks, func(task, worker int) {
		mem := code.worker(worker)
		high, in, reg := floats(mem, 0, w*ch), floats(mem, w*ch*4, w*ch), floats(mem, 2*w*ch*4, ow*ch)
		for i := task * per; i < min((task+1)*per, rows); i++ {
			b, p := i/oh, i%oh
			from, to := span(p*op.Stride[0]-op.Pad[0], op.Kernel[0], h)
			copy(high, row(x, d, b*h+from, w*ch, in))
			for r := from + 1; r < to; r++ {
				combine(high, high, row(x, d, b*h+r, w*ch, in))
			}
			dst := direct(y, d, i, ow*ch, reg)
			for q := range ow {
				from, to := span(q*op.Stride[1]-op.Pad[2], op.Kernel[1], w)
				v := dst[q*ch : (q+1)*ch]
				copy(v, high[from*ch:])
				for k := from + 1; k < to; k++ {
					combine(v, v, high[k*ch:(k+1)*ch])
				}
			}
			if scale != 1 {
				simd.MulScalar(dst, dst, scale)
			}
			put(y, d, i, ow*ch, dst)
		}
	}}}, nil
}

func (c *compiler) pool2dGrad(n *graph.Node, op graph.Pool2DGrad) ([]phase, error) {
	if op.Pool.Body != nil {
		return nil, errPoolBody
	}
	if op.Pool.Kind == graph.PoolAverage {
		return c.avgPoolGrad(n, op)
	}
	d := n.Out[0].DType()
	if quarters(op.Pool, n.Out[0].Type) && n.In[1].DType() == d && n.In[2].DType() == d {
		return c.maxQuartersGrad(n)
	}
	return c.maxPoolGrad(n, op)
}

// covering returns the windows [from, to) of n that element at belongs to.
func covering(at, kernel, stride, pad, n int) (from, to int) {
	at += pad
	from = 0
	if at >= kernel {
		from = (at-kernel)/stride + 1
	}
	return from, min(at/stride+1, n)
}

// avgPoolGrad gathers for each row of the image the windows that cover it.
func (c *compiler) avgPoolGrad(n *graph.Node, op graph.Pool2DGrad) ([]phase, error) {
	dy, dx := c.ref(n.In[0]), c.ref(n.Out[0])
	s, d, p := n.In[0].Shape(), n.In[0].DType(), op.Pool
	oh, ow, ch := s[1], s[2], s[3]
	scale := 1 / float32(p.Kernel[0]*p.Kernel[1])
	code := c.code
	c.need(0, (2*ow+op.W)*ch*4)
	rows := s[0] * op.H
	tasks, per := chunks(rows, max(1, grain/(op.W*ch*2)))
	return []phase{{tasks, func(task, worker int) {
		mem := code.worker(worker)
		sum, in, reg := floats(mem, 0, ow*ch), floats(mem, ow*ch*4, ow*ch), floats(mem, 2*ow*ch*4, op.W*ch)
		for i := task * per; i < min((task+1)*per, rows); i++ {
			clear(sum)
			from, to := covering(i%op.H, p.Kernel[0], p.Stride[0], p.Pad[0], oh)
			for r := from; r < to; r++ {
				simd.Add(sum, sum, row(dy, d, i/op.H*oh+r, ow*ch, in))
			}
			simd.MulScalar(sum, sum, scale)
			dst := direct(dx, d, i, op.W*ch, reg)
			clear(dst)
			for k := range op.W {
				from, to := covering(k, p.Kernel[1], p.Stride[1], p.Pad[2], ow)
				for q := from; q < to; q++ {
					simd.Add(dst[k*ch:(k+1)*ch], dst[k*ch:(k+1)*ch], sum[q*ch:(q+1)*ch])
				}
			}
			put(dx, d, i, op.W*ch, dst)
		}
	}}}, nil
}

// maxPoolGrad gives a task the rows of an image that belong to one row of windows or, if
// windows overlap, whole images.
func (c *compiler) maxPoolGrad(n *graph.Node, op graph.Pool2DGrad) ([]phase, error) {
	g := &maxGrad{op: op, dy: c.ref(n.In[0]), x: c.ref(n.In[1]), y: c.ref(n.In[2]), dx: c.ref(n.Out[0]),
		types: [3]graph.DType{n.In[0].DType(), n.In[1].DType(), n.In[2].DType()},
		oh:    n.In[0].Shape()[1], ow: n.In[0].Shape()[2], ch: n.In[0].Shape()[3]}
	// The last band also includes the rows that no window reaches.
	bands, height := g.oh, min(op.H, op.Pool.Stride[0]+op.Pool.Kernel[0])
	if op.Pool.Kernel[0] > op.Pool.Stride[0] {
		bands, height = 1, op.H
	}
	need := (2*g.ow + op.W) * g.ch
	if g.types[0] != graph.F32 {
		need += height * op.W * g.ch
	}
	code := c.code
	c.need(0, need*4)
	return []phase{{n.In[0].Shape()[0] * bands, func(task, w int) {
		g.band(task/bands, task%bands, bands, floats(code.worker(w), 0, need))
	}}}, nil
}

type maxGrad struct {
	op           graph.Pool2DGrad
	dy, x, y, dx ref
	types        [3]graph.DType // of dy, x and y; dx has dy's
	oh, ow, ch   int
}

// band computes band k of image b.
func (g *maxGrad) band(b, k, bands int, mem []float32) {
	p, per := g.op.Pool, g.oh/bands
	first, last := 0, g.op.H
	if k > 0 {
		first = min(max(k*per*p.Stride[0]-p.Pad[0], 0), g.op.H)
	}
	if k < bands-1 {
		last = min(max((k+1)*per*p.Stride[0]-p.Pad[0], 0), g.op.H)
	}
	width := g.op.W * g.ch
	if first == last {
		return // all padding
	}
	var dx []float32
	if g.types[0] == graph.F32 {
		dx = g.dx.f32()[(b*g.op.H+first)*width : (b*g.op.H+last)*width]
	} else {
		dx = mem[(2*g.ow+g.op.W)*g.ch:][:(last-first)*width]
	}
	clear(dx)
	for r := k * per; r < (k+1)*per; r++ {
		g.windows(b, r, dx, first, mem)
	}
	if d := g.types[0]; d != graph.F32 {
		o := operand{ref: g.dx, dtype: d}
		o.store(dx, (b*g.op.H+first)*width)
	}
}

// windows adds the contribution of row r of the windows of image b to dx, which begins at
// row first of the image.
func (g *maxGrad) windows(b, r int, dx []float32, first int, mem []float32) {
	p, wide, ch := g.op.Pool, g.ow*g.ch, g.ch
	grad := mem[:wide] // of each window, until it has found its greatest element
	copy(grad, row(g.dy, g.types[0], b*g.oh+r, wide, grad))
	top := row(g.y, g.types[2], b*g.oh+r, wide, mem[wide:2*wide])
	from, to := span(r*p.Stride[0]-p.Pad[0], p.Kernel[0], g.op.H)
	for i := from; i < to; i++ {
		x := row(g.x, g.types[1], b*g.op.H+i, g.op.W*ch, mem[2*wide:][:g.op.W*ch])
		to := dx[(i-first)*g.op.W*ch:]
		for q := range g.ow {
			c0, c1 := span(q*p.Stride[1]-p.Pad[2], p.Kernel[1], g.op.W)
			for k := c0; k < c1; k++ {
				simd.RouteMax(to[k*ch:(k+1)*ch], grad[q*ch:(q+1)*ch], top[q*ch:(q+1)*ch], x[k*ch:(k+1)*ch])
			}
		}
	}
}
