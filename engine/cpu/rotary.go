package cpu

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

func (c *compiler) rotaryTable(n *graph.Node, op graph.RotaryTable) ([]phase, error) {
	out := c.ref(n.Out[0])
	half := op.Dims / 2
	tasks, per := chunks(op.T, max(1, 512/max(half, 1)))
	return []phase{{tasks, func(task, _ int) {
		for t := task * per; t < min((task+1)*per, op.T); t++ {
			op.Row(out.f32()[t*op.Dims:(t+1)*op.Dims], t)
		}
	}}}, nil
}

// heads lists where the heads to be rotated start within a row, in elements.
func rotaryHeads(op graph.Rotary, k int) []int {
	var at []int
	for h := range op.Heads {
		switch op.Layout {
		case graph.PackedHeads:
			at = append(at, h*3*k, h*3*k+k)
		case graph.PackedQKV:
			at = append(at, h*k, (op.Heads+h)*k)
		default:
			at = append(at, h*k)
		}
	}
	return at
}

func (c *compiler) rotary(n *graph.Node, op graph.Rotary) ([]phase, error) {
	x, table, y := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	var offset ref
	if op.Offset {
		offset = c.ref(n.In[2])
	}
	s, d := n.In[0].Shape(), n.In[0].DType()
	at := rotaryHeads(op, op.HeadSize([]graph.Type{n.In[0].Type}))
	half, width, limit := op.Dims/2, s[2], n.In[1].Shape()[0]
	code := c.code
	c.need(0, 2*width*4)
	rows := s[0] * s[1]
	tasks, per := chunks(rows, max(1, grain/width))
	return []phase{{tasks, func(task, w int) {
		in, out := floats(code.worker(w), 0, width), floats(code.worker(w), width*4, width)
		for i := task * per; i < min((task+1)*per, rows); i++ {
			pos := i % s[1]
			if op.Offset {
				pos = min(pos+int(offset.i32()[i/s[1]]), limit-1)
			}
			cs := table.f32()[pos*op.Dims : (pos+1)*op.Dims]
			xr, yr := row(x, d, i, width, in), direct(y, d, i, width, out)
			if &xr[0] != &yr[0] {
				copy(yr, xr)
			}
			for _, h := range at {
				simd.RotaryRow(yr[h:h+op.Dims], yr[h:h+op.Dims], cs[:half], cs[half:], half, op.Inverse)
			}
			put(y, d, i, width, yr)
		}
	}}}, nil
}

func (c *compiler) cacheWrite(n *graph.Node) ([]phase, error) {
	cache, x, pos := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.In[2])
	cs, xs := n.In[0].Shape(), n.In[1].Shape()
	from, to := n.In[1].DType(), n.In[0].DType()
	width := xs[2]
	code := c.code
	c.need(0, width*4)
	return []phase{{xs[0] * xs[1], func(i, w int) {
		b, t := i/xs[1], int(pos.i32()[i/xs[1]])+i%xs[1]
		if t < 0 || t >= cs[1] {
			return // beyond the window: the caller limits the length
		}
		reg := floats(code.worker(w), 0, width)
		src, dst := operand{ref: x, dtype: from}, operand{ref: cache, dtype: to}
		dst.store(src.load(reg, i*width, 1), (b*cs[1]+t)*width)
	}}}, nil
}
