package cpu

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// route is a counting sort: choices are counted, experts get their rows, and
// each choice takes the next row of its expert.
func (c *compiler) route(n *graph.Node, op graph.Route) ([]phase, error) {
	choice := c.ref(n.In[0])
	slot, source, offsets, wanted := c.ref(n.Out[0]), c.ref(n.Out[1]), c.ref(n.Out[2]), c.ref(n.Out[3])
	code, layer := c.code, n.Layer
	c.need(op.Experts*4, 0)
	return []phase{{1, func(_, _ int) {
		slots, sources, first, count := slot.i32(), source.i32(), offsets.i32(), wanted.i32()
		clear(count)
		for i, e := range choice.i32() {
			if e < 0 || int(e) >= op.Experts {
				code.m.fail(fmt.Errorf("%s: choice %d at position %d is outside the %d experts", layer, e, i, op.Experts))
				continue
			}
			count[e]++
		}
		next := ints(code.m.shared, op.Experts)
		first[0] = 0
		for e, wants := range count {
			next[e] = first[e]
			if op.Capacity > 0 {
				wants = min(wants, int32(op.Capacity))
			}
			first[e+1] = first[e] + wants
		}
		for i, e := range choice.i32() {
			slots[i] = -1
			if e >= 0 && int(e) < op.Experts && next[e] < first[e+1] {
				slots[i], sources[next[e]] = next[e], int32(i)
				next[e]++
			}
		}
		for r := int(first[op.Experts]); r < len(sources); r++ {
			sources[r] = -1
		}
	}}}, nil
}

func (c *compiler) dispatch(n *graph.Node, op graph.Dispatch) ([]phase, error) {
	x, source, y := c.ref(n.In[0]), c.ref(n.In[2]), c.ref(n.Out[0])
	var weights ref
	if op.Weighted {
		weights = c.ref(n.In[3])
	}
	k, width, d := n.In[1].Shape()[1], n.In[0].Shape()[1], n.In[0].DType()
	size := width * int(d.Size())
	code := c.code
	c.need(0, width*4)
	tasks, per := chunks(source.n, max(1, grain/width))
	return []phase{{tasks, func(task, w int) {
		reg := floats(code.worker(w), 0, width)
		for r := task * per; r < min((task+1)*per, source.n); r++ {
			s := int(source.i32()[r])
			switch {
			case s < 0:
				clear(y.bytes(r*size, size))
			case op.Weighted:
				out := direct(y, d, r, width, reg)
				simd.MulScalar(out, row(x, d, s/k, width, reg), weights.f32()[s])
				put(y, d, r, width, out)
			default:
				copy(y.bytes(r*size, size), x.bytes(s/k*size, size))
			}
		}
	}}}, nil
}

func (c *compiler) combine(n *graph.Node, op graph.Combine) ([]phase, error) {
	y, slot, x := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	var weights ref
	if op.Weighted {
		weights = c.ref(n.In[3])
	}
	tokens, k, width, d := n.In[1].Shape()[0], n.In[1].Shape()[1], n.In[0].Shape()[1], n.In[0].DType()
	code := c.code
	c.need(0, 2*width*4)
	tasks, per := chunks(tokens, max(1, grain/width/k))
	return []phase{{tasks, func(task, w int) {
		in, reg := floats(code.worker(w), 0, width), floats(code.worker(w), width*4, width)
		for t := task * per; t < min((task+1)*per, tokens); t++ {
			out := direct(x, d, t, width, reg)
			clear(out)
			for i := t * k; i < (t+1)*k; i++ {
				s := int(slot.i32()[i])
				if s < 0 {
					continue
				}
				weight := float32(1)
				if op.Weighted {
					weight = weights.f32()[i]
				}
				simd.Axpy(out, row(y, d, s, width, in), weight)
			}
			put(x, d, t, width, out)
		}
	}}}, nil
}

func (c *compiler) routedDot(n *graph.Node) ([]phase, error) {
	x, y, slot, out := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.In[2]), c.ref(n.Out[0])
	k, width, dx, dy := n.In[2].Shape()[1], n.In[0].Shape()[1], n.In[0].DType(), n.In[1].DType()
	code := c.code
	c.need(0, 2*width*4)
	tasks, per := chunks(out.n, max(1, grain/width))
	return []phase{{tasks, func(task, w int) {
		a, b := floats(code.worker(w), 0, width), floats(code.worker(w), width*4, width)
		for i := task * per; i < min((task+1)*per, out.n); i++ {
			out.f32()[i] = 0
			if s := int(slot.i32()[i]); s >= 0 {
				out.f32()[i] = simd.Dot(row(x, dx, i/k, width, a), row(y, dy, s, width, b))
			}
		}
	}}}, nil
}
