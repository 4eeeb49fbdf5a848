package cpu

import (
	"math"
	"unsafe"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/codebook"
	"github.com/snug-ml/snug/internal/simd"
)

func (c *compiler) adamW(n *graph.Node, op graph.AdamW) ([]phase, error) {
	m, v := c.ref(n.In[2]), c.ref(n.In[3])
	w, scalars := c.trained(n, op, op.Round, 0), c.refs(n.In[2+op.States():])
	lr, gscale, t, ok := scalars[0], scalars[1], scalars[2], scalars[3]
	tasks, per := w.tasks()
	keep := func([]float32, int, int) {}
	if op.Rounded != graph.Invalid {
		half := c.ref(n.In[4])
		keep = func(x []float32, a, b int) { narrow(half.u16()[a:b], x, op.Rounded) }
	}
	return []phase{{tasks, func(task, worker int) {
		a, b := task*per, min((task+1)*per, w.w.n)
		if ok.scalar() != 0 {
			coef := adamWCoef(op, lr.scalar(), gscale.scalar(), t.scalar())
			w.each(a, b, worker, func(x, g []float32, a, b int) {
				simd.AdamW(x, g, m.f32()[a:b], v.f32()[a:b], coef)
				keep(x, a, b)
			})
		}
		if op.ZeroGrad {
			w.g.clear(a, b)
		}
	}}}, nil
}

func adamWCoef(op graph.AdamW, lr, gscale, t float32) simd.AdamWCoef {
	return simd.AdamWCoef{
		LR: float64(lr) * op.LRScale, Beta1: op.Beta1, Beta2: op.Beta2, Eps: op.Eps,
		WeightDecay: op.WeightDecay, GradScale: float64(gscale),
		BiasCorr1: 1 - math.Pow(op.Beta1, float64(t)), BiasCorr2: 1 - math.Pow(op.Beta2, float64(t)),
	}
}

// adamW8bit widens a block's moments to float32 in scratch that stays in cache, runs
// AdamW on them, and rounds them again.
func (c *compiler) adamW8bit(n *graph.Node, op graph.AdamW8bit) ([]phase, error) {
	const block = graph.MomentBlock
	code := c.code
	codes, scales := c.refs(n.In[2:4]), c.refs(n.In[4:6])
	const randomAt, scratch = 2 * block * 4, 2*block*4 + block/2*4
	w, scalars := c.trained(n, op, op.Round, scratch), c.refs(n.In[2+op.States():])
	lr, gscale, t, ok := scalars[0], scalars[1], scalars[2], scalars[3]
	tasks, per := chunks(scales[0].n, grain/block)
	return []phase{{tasks, func(task, worker int) {
		coef := adamWCoef(op.AdamW(), lr.scalar(), gscale.scalar(), t.scalar())
		for b := task * per; b < min((task+1)*per, scales[0].n); b++ {
			from, to := b*block, min((b+1)*block, w.w.n)
			if ok.scalar() != 0 {
				mem := code.worker(worker)
				moments := [2][]float32{floats(mem, 0, block)[:to-from], floats(mem, block*4, block)[:to-from]}
				codebook.Signed.Decode(moments[0], codes[0].u8()[from:to], scales[0].f32()[b])
				codebook.Unsigned.Decode(moments[1], codes[1].u8()[from:to], scales[1].f32()[b])
				w.each(from, to, worker, func(x, g []float32, _, _ int) { simd.AdamW(x, g, moments[0], moments[1], coef) })
				random := unsafe.Slice((*uint32)(unsafe.Pointer(&mem[randomAt])), block/2)
				simd.Philox(random, op.Round.Seed, philoxStream(op.Round.Stream, uint32(t.scalar())|graph.SecondMoments), uint64(op.Round.First+int64(from))/2)
				halves := unsafe.Slice((*uint16)(unsafe.Pointer(&random[0])), to-from)
				scales[0].f32()[b] = codebook.Signed.Encode(codes[0].u8()[from:to], moments[0])
				scales[1].f32()[b] = codebook.Unsigned.Encode(codes[1].u8()[from:to], moments[1], halves)
			}
			if op.ZeroGrad {
				w.g.clear(from, to)
			}
		}
	}}}, nil
}

func (c *compiler) lion(n *graph.Node, op graph.Lion) ([]phase, error) {
	m := c.ref(n.In[2])
	w, scalars := c.trained(n, op, op.Round, 0), c.refs(n.In[2+op.States():])
	lr, gscale, ok := scalars[0], scalars[1], scalars[len(scalars)-1]
	tasks, per := w.tasks()
	return []phase{{tasks, func(task, worker int) {
		a, b := task*per, min((task+1)*per, w.w.n)
		if ok.scalar() != 0 {
			coef := simd.LionCoef{
				LR: float64(lr.scalar()) * op.LRScale, Beta1: op.Beta1, Beta2: op.Beta2,
				WeightDecay: op.WeightDecay, GradScale: float64(gscale.scalar()),
			}
			w.each(a, b, worker, func(x, g []float32, a, b int) { simd.Lion(x, g, m.f32()[a:b], coef) })
		}
		if op.ZeroGrad {
			w.g.clear(a, b)
		}
	}}}, nil
}

func (c *compiler) sgd(n *graph.Node, op graph.SGD) ([]phase, error) {
	w, scalars := c.trained(n, op, op.Round, 0), c.refs(n.In[2+op.States():])
	lr, gscale, ok := scalars[0], scalars[1], scalars[len(scalars)-1]
	tasks, per := w.tasks()
	return []phase{{tasks, func(task, worker int) {
		a, b := task*per, min((task+1)*per, w.w.n)
		if ok.scalar() != 0 {
			rate := float64(lr.scalar()) * op.LRScale
			decay, step := float32(1-rate*op.WeightDecay), float32(-rate*float64(gscale.scalar()))
			for ; a < b; a += stepTile {
				w.each(a, min(a+stepTile, b), worker, func(x, g []float32, _, _ int) {
					simd.MulScalar(x, x, decay)
					simd.Axpy(x, g, step)
				})
			}
		}
		if op.ZeroGrad {
			w.g.clear(task*per, b)
		}
	}}}, nil
}

func (c *compiler) assign(n *graph.Node, op graph.Assign) ([]phase, error) {
	s, v := c.ref(n.In[0]), c.ref(n.In[1])
	from, to := n.In[1].DType(), n.In[0].DType()
	code := c.code
	random := op.Round.Mode == graph.Stochastic
	bytes := 2 * tile * 4
	var run ref
	if random {
		run = c.ref(n.In[2])
		bytes += tile / 2 * 4
	}
	c.need(0, bytes)
	tasks, per := chunks((s.n+tile-1)/tile, grain/tile)
	per *= tile
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
			if random {
				words := unsafe.Slice((*uint32)(unsafe.Pointer(&code.worker(w)[2*tile*4])), tile/2)
				simd.StochasticBF16(s.u16()[a:a+m], x, words, op.Round.Seed, randomStream(op.Round.Stream, run), uint64(a))
				continue
			}
			dst.store(x, a)
		}
	}}}, nil
}

func (c *compiler) globalNorm(n *graph.Node) ([]phase, error) {
	in := c.refs(n.In)
	type part struct{ operand, from, to int }
	var parts []part
	for i, r := range in {
		for a := 0; a < r.n; a += graph.NormChunk {
			parts = append(parts, part{i, a, min(a+graph.NormChunk, r.n)})
		}
	}
	out, code := c.ref(n.Out[0]), c.code
	wide := 0 // elements of a chunk in float32, whose squares are added like any others
	for _, p := range parts {
		if n.In[p.operand].DType() == graph.BF16 {
			wide = max(wide, p.to-p.from)
		}
	}
	c.need(len(parts)*8, 4*wide)
	sums := func() []float64 { return unsafe.Slice((*float64)(unsafe.Pointer(&code.m.shared[0])), len(parts)) }
	return []phase{{len(parts), func(task, worker int) {
		p := parts[task]
		var x []float32
		if r := in[p.operand]; n.In[p.operand].DType() == graph.BF16 {
			x = floats(code.worker(worker), 0, p.to-p.from)
			simd.BF16ToF32(x, r.u16()[p.from:p.to])
		} else {
			x = r.f32()[p.from:p.to]
		}
		sums()[task] = simd.SumSqF64(x)
	}}, {1, func(_, _ int) {
		s := 0.0
		for _, v := range sums() {
			s += v
		}
		out.f32()[0] = float32(math.Sqrt(s))
	}}}, nil
}
