package cpu

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// topK keeps the largest elements seen so far in order: most elements are compared only
// with the smallest of them.
func (c *compiler) topK(n *graph.Node, op graph.TopK) ([]phase, error) {
	x, values, indices := c.ref(n.In[0]), c.ref(n.Out[0]), c.ref(n.Out[1])
	rows, width, d := n.In[0].Shape().Rows(), n.In[0].Shape().Last(), n.In[0].DType()
	code := c.code
	c.need(0, (width+op.K)*4)
	tasks, per := chunks(rows, max(1, grain/8/width))
	return []phase{{tasks, func(task, w int) {
		in, out := floats(code.worker(w), 0, width), floats(code.worker(w), width*4, op.K)
		for i := task * per; i < min((task+1)*per, rows); i++ {
			best := direct(values, d, i, op.K, out)
			at := indices.i32()[i*op.K : (i+1)*op.K]
			for j, v := range row(x, d, i, width, in) {
				k := min(j, op.K)
				if k == op.K && !(v > best[k-1]) {
					continue
				}
				for k = min(k, op.K-1); k > 0 && v > best[k-1]; k-- {
					best[k], at[k] = best[k-1], at[k-1]
				}
				best[k], at[k] = v, int32(j)
			}
			put(values, d, i, op.K, best)
		}
	}}}, nil
}

// index returns element i of an index operand of n positions; an invalid one fails the
// run and counts as 0.
func (c *Code) index(at ref, i, n int, layer string) int {
	k := int(at.i32()[i])
	if k < 0 || k >= n {
		c.m.fail(fmt.Errorf("%s: index %d at position %d is outside the %d positions", layer, k, i, n))
		return 0
	}
	return k
}

func (c *compiler) gather(n *graph.Node) ([]phase, error) {
	x, index, y := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	width, picks, d := n.In[0].Shape().Last(), n.In[1].Shape().Last(), n.In[0].DType()
	rows := index.n / picks
	code, layer := c.code, n.Layer
	c.need(0, picks*4)
	tasks, per := chunks(rows, max(1, grain/8/picks))
	return []phase{{tasks, func(task, w int) {
		reg := floats(code.worker(w), 0, picks)
		var one [1]float32
		for i := task * per; i < min((task+1)*per, rows); i++ {
			out := direct(y, d, i, picks, reg)
			for k := range picks {
				at := code.index(index, i*picks+k, width, layer)
				out[k] = rowPart(x, d, i*width+at, i*width+at+1, one[:])[0]
			}
			put(y, d, i, picks, out)
		}
	}}}, nil
}

func (c *compiler) scatter(n *graph.Node, op graph.Scatter) ([]phase, error) {
	x, index, y := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	picks, d := n.In[1].Shape().Last(), n.In[0].DType()
	rows := index.n / picks
	code, layer := c.code, n.Layer
	c.need(0, (picks+op.N)*4)
	tasks, per := chunks(rows, max(1, grain/4/(picks+op.N)))
	return []phase{{tasks, func(task, w int) {
		in, reg := floats(code.worker(w), 0, picks), floats(code.worker(w), picks*4, op.N)
		for i := task * per; i < min((task+1)*per, rows); i++ {
			out := direct(y, d, i, op.N, reg)
			clear(out)
			for k, v := range row(x, d, i, picks, in) {
				out[code.index(index, i*picks+k, op.N, layer)] += v
			}
			put(y, d, i, op.N, out)
		}
	}}}, nil
}

func (c *compiler) argMax(n *graph.Node) ([]phase, error) {
	x, y := c.ref(n.In[0]), c.ref(n.Out[0])
	width, d := n.In[0].Shape().Last(), n.In[0].DType()
	code := c.code
	c.need(0, width*4)
	tasks, per := chunks(y.n, max(1, grain/width))
	return []phase{{tasks, func(task, w int) {
		reg := floats(code.worker(w), 0, width)
		for i := task * per; i < min((task+1)*per, y.n); i++ {
			y.i32()[i] = int32(simd.ArgMax(row(x, d, i, width, reg)))
		}
	}}}, nil
}

func (c *compiler) oneHot(n *graph.Node, op graph.OneHot) ([]phase, error) {
	index, y := c.ref(n.In[0]), c.ref(n.Out[0])
	tasks, per := chunks(index.n, max(1, grain/op.N))
	return []phase{{tasks, func(task, _ int) {
		first, last := task*per, min((task+1)*per, index.n)
		out := y.f32()[first*op.N : last*op.N]
		clear(out)
		for i, k := range index.i32()[first:last] {
			if k >= 0 && int(k) < op.N {
				out[i*op.N+int(k)] = 1
			}
		}
	}}}, nil
}
