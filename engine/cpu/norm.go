package cpu

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

func (c *compiler) layerNorm(n *graph.Node, op graph.LayerNorm) ([]phase, error) {
	x, gamma, y, mean, rstd := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0]), c.ref(n.Out[1]), c.ref(n.Out[2])
	var beta ref
	if !op.RMS {
		beta = c.ref(n.In[2])
	}
	rows, width := n.In[0].Shape().Rows(), n.In[0].Shape().Last()
	dx, dy := n.In[0].DType(), n.Out[0].DType()
	code := c.code
	c.need(0, 2*width*4)
	tasks, per := chunks(rows, max(1, grain/width))
	if dx == graph.BF16 && dy == graph.BF16 && simd.NormsBF16(width) {
		return []phase{{tasks, func(task, w int) {
			zeros := floats(code.worker(w), 0, width)
			clear(zeros)
			for i := task * per; i < min((task+1)*per, rows); i++ {
				if op.RMS {
					mean.f32()[i], rstd.f32()[i] = 0, simd.RMSNormRowBF16(row16(y, i, width), row16(x, i, width), gamma.f32(), zeros, float32(op.Eps))
					continue
				}
				mean.f32()[i], rstd.f32()[i] = simd.LayerNormRowBF16(row16(y, i, width), row16(x, i, width), gamma.f32(), beta.f32(), float32(op.Eps))
			}
		}}}, nil
	}
	return []phase{{tasks, func(task, w int) {
		in, out := floats(code.worker(w), 0, width), floats(code.worker(w), width*4, width)
		for i := task * per; i < min((task+1)*per, rows); i++ {
			xr := row(x, dx, i, width, in)
			yr := direct(y, dy, i, width, out)
			if op.RMS {
				mean.f32()[i], rstd.f32()[i] = 0, simd.RMSNormRow(yr, xr, gamma.f32(), float32(op.Eps))
			} else {
				mean.f32()[i], rstd.f32()[i] = simd.LayerNormRow(yr, xr, gamma.f32(), beta.f32(), float32(op.Eps))
			}
			put(y, dy, i, width, yr)
		}
	}}}, nil
}

// normGroups is the number of fixed groups into which rows are divided for the sums
// of dgamma and dbeta.
const normGroups = 32

func (c *compiler) layerNormGrad(n *graph.Node, op graph.LayerNormGrad) ([]phase, error) {
	dy, x, gamma, mean, rstd := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.In[2]), c.ref(n.In[3]), c.ref(n.In[4])
	dx, dgamma := c.ref(n.Out[0]), c.ref(n.Out[1])
	var addend ref
	if len(n.In) > 5 {
		addend = c.ref(n.In[5])
	}
	outs := []ref{dgamma}
	if !op.RMS {
		outs = append(outs, c.ref(n.Out[2]))
	}
	rows, width := n.In[1].Shape().Rows(), n.In[1].Shape().Last()
	ddy, dtx, ddx := n.In[0].DType(), n.In[1].DType(), n.Out[0].DType()
	code := c.code
	c.need(len(outs)*normGroups*width*4, 3*width*4)
	sums := func(k, g int) []float32 { return floats(code.m.shared, (k*normGroups+g)*width*4, width) }
	per := (rows + normGroups - 1) / normGroups
	in16 := ddy == graph.BF16 && dtx == graph.BF16 && ddx == graph.BF16 && simd.NormsBF16(width)
	return []phase{{normGroups, func(g, w int) {
		mem := code.worker(w)
		a, b, o := floats(mem, 0, width), floats(mem, width*4, width), floats(mem, 2*width*4, width)
		for k := range outs {
			clear(sums(k, g))
		}
		clear(a)
		for i := g * per; i < min((g+1)*per, rows); i++ {
			if in16 {
				var more []uint16
				if addend.n > 0 {
					more = row16(addend, i, width)
				}
				if op.RMS {
					simd.RMSNormRowGradBF16(row16(dx, i, width), sums(0, g), a, row16(dy, i, width), row16(x, i, width), more, gamma.f32(), rstd.f32()[i])
					continue
				}
				simd.LayerNormRowGradBF16(row16(dx, i, width), sums(0, g), sums(1, g), row16(dy, i, width), row16(x, i, width), more,
					gamma.f32(), mean.f32()[i], rstd.f32()[i])
				continue
			}
			dyr, xr, dxr := row(dy, ddy, i, width, a), row(x, dtx, i, width, b), direct(dx, ddx, i, width, o)
			if op.RMS {
				simd.RMSNormRowGrad(dxr, sums(0, g), dyr, xr, gamma.f32(), rstd.f32()[i])
			} else {
				simd.LayerNormRowGrad(dxr, sums(0, g), sums(1, g), dyr, xr, gamma.f32(), mean.f32()[i], rstd.f32()[i])
			}
			if addend.n > 0 {
				round(dxr, ddx)
				simd.Add(dxr, dxr, row(addend, ddx, i, width, a))
			}
			put(dx, ddx, i, width, dxr)
		}
	}}, {len(outs), func(k, _ int) {
		total(outs[k].f32(), floats(code.m.shared, k*normGroups*width*4, normGroups*width), normGroups, width)
	}}}, nil
}

func (c *compiler) softmax(n *graph.Node) ([]phase, error) {
	x, y := c.ref(n.In[0]), c.ref(n.Out[0])
	rows, width := n.In[0].Shape().Rows(), n.In[0].Shape().Last()
	tasks, per := chunks(rows, max(1, grain/4/width))
	return []phase{{tasks, func(task, _ int) {
		for i := task * per; i < min((task+1)*per, rows); i++ {
			simd.SoftmaxRow(y.f32()[i*width:(i+1)*width], x.f32()[i*width:(i+1)*width])
		}
	}}}, nil
}

func (c *compiler) softmaxGrad(n *graph.Node) ([]phase, error) {
	y, dy, dx := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	rows, width := n.In[0].Shape().Rows(), n.In[0].Shape().Last()
	tasks, per := chunks(rows, max(1, grain/2/width))
	return []phase{{tasks, func(task, _ int) {
		for i := task * per; i < min((task+1)*per, rows); i++ {
			a, b := i*width, (i+1)*width
			simd.SoftmaxRowGrad(dx.f32()[a:b], y.f32()[a:b], dy.f32()[a:b])
		}
	}}}, nil
}
