package cpu

import (
	"math"
	"unsafe"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

func (c *compiler) adamW(n *graph.Node, op graph.AdamW) ([]phase, error) {
	w, g, m, v := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.In[2]), c.ref(n.In[3])
	lr, gscale, t, ok := c.ref(n.In[4]), c.ref(n.In[5]), c.ref(n.In[6]), c.ref(n.In[7])
	tasks, per := chunks(w.n, grain)
	return []phase{{tasks, func(task, _ int) {
		a, b := task*per, min((task+1)*per, w.n)
		if ok.scalar() != 0 {
			steps := float64(t.scalar())
			simd.AdamW(w.f32()[a:b], g.f32()[a:b], m.f32()[a:b], v.f32()[a:b], simd.AdamWCoef{
				LR: float64(lr.scalar()) * op.LRScale, Beta1: op.Beta1, Beta2: op.Beta2, Eps: op.Eps,
				WeightDecay: op.WeightDecay, GradScale: float64(gscale.scalar()),
				BiasCorr1: 1 - math.Pow(op.Beta1, steps), BiasCorr2: 1 - math.Pow(op.Beta2, steps),
			})
		}
		if op.ZeroGrad {
			clear(g.f32()[a:b])
		}
	}}}, nil
}

func (c *compiler) assign(n *graph.Node, op graph.Assign) ([]phase, error) {
	s, v := c.ref(n.In[0]), c.ref(n.In[1])
	from, to := n.In[1].DType(), n.In[0].DType()
	code := c.code
	c.need(0, 2*tile*4)
	tasks, per := chunks(s.n, grain)
	return []phase{{tasks, func(task, w int) {
		reg, old := floats(code.worker(w), 0, tile), floats(code.worker(w), tile*4, tile)
		src, dst := operand{ref: v, dtype: from}, operand{ref: s, dtype: to}
		for a := task * per; a < min((task+1)*per, s.n); a += tile {
			m := min(tile, s.n-a, (task+1)*per-a)
			x := src.load(reg[:m], a, 1)
			if op.Add {
				y := dst.load(old[:m], a, 1)
				simd.Add(y, y, x)
				x = y
			}
			dst.store(x, a)
		}
	}}}, nil
}

// normChunk is how many elements one partial sum of squares covers.
const normChunk = 64 << 10

func (c *compiler) globalNorm(n *graph.Node) ([]phase, error) {
	in := c.refs(n.In)
	type part struct{ operand, from, to int }
	var parts []part
	for i, r := range in {
		for a := 0; a < r.n; a += normChunk {
			parts = append(parts, part{i, a, min(a+normChunk, r.n)})
		}
	}
	out, code := c.ref(n.Out[0]), c.code
	c.need(len(parts)*8, 0)
	sums := func() []float64 { return unsafe.Slice((*float64)(unsafe.Pointer(&code.m.shared[0])), len(parts)) }
	return []phase{{len(parts), func(task, _ int) {
		p := parts[task]
		sums()[task] = simd.SumSqF64(in[p.operand].f32()[p.from:p.to])
	}}, {1, func(_, _ int) {
		s := 0.0
		for _, v := range sums() {
			s += v
		}
		out.f32()[0] = float32(math.Sqrt(s))
	}}}, nil
}
