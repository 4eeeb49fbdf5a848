package cpu

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// stepTile is how many elements of a 16-bit weight are float32 at a time, in scratch that
// stays in cache, while an optimizer works on them. It is even, as [simd.StochasticBF16]
// requires.
const stepTile = 1024

// trained is a weight as seen by an optimizer's step.
type trained struct {
	w, rest, t ref // rest is the rounding error of the weight, t the number of the update
	g          gradient
	round      graph.Rounding
	code       *Code
	scratch    int // where a worker's scratch begins
}

// gradient is a weight's gradient: in float32, or widened to float32 in a worker's
// scratch.
type gradient struct {
	ref
	narrow  bool
	scratch int // where the worker's scratch begins
}

// part returns elements from to to, at most stepTile of them if it is narrow.
func (g *gradient) part(mem []byte, from, to int) []float32 {
	if !g.narrow {
		return g.f32()[from:to]
	}
	x := floats(mem, g.scratch, to-from)
	simd.BF16ToF32(x, g.u16()[from:to])
	return x
}

func (g *gradient) clear(from, to int) {
	if g.narrow {
		clear(g.u16()[from:to])
	} else {
		clear(g.f32()[from:to])
	}
}

// trained returns the weight of an optimizer's node, and its gradient. The first bytes of the
// workers' scratch belong to the step itself.
func (c *compiler) trained(n *graph.Node, op graph.Optimizer, r graph.Rounding, bytes int) *trained {
	w := &trained{w: c.ref(n.In[0]), round: r, code: c.code, scratch: bytes}
	switch r.Mode {
	case graph.Stochastic:
		w.t = c.ref(n.In[4+op.States()])
	case graph.Compensated:
		w.rest = c.ref(n.In[1+op.States()])
	}
	if r.Mode != graph.Exact {
		bytes += 2 * stepTile * 4
	}
	if w.g = (gradient{c.ref(n.In[1]), n.In[1].DType() == graph.BF16, bytes}); w.g.narrow {
		bytes += stepTile * 4
	}
	c.need(0, bytes)
	return w
}

// tasks divides the elements.
func (w *trained) tasks() (tasks, per int) {
	if w.round.Mode == graph.Exact {
		return chunks(w.w.n, grain)
	}
	tasks, per = chunks((w.w.n+stepTile-1)/stepTile, max(1, grain/stepTile))
	return tasks, per * stepTile
}

// each makes step change elements from to to in float32 by their gradients g, some at a
// time.
func (w *trained) each(from, to, worker int, step func(x, g []float32, from, to int)) {
	if w.round.Mode == graph.Exact && !w.g.narrow {
		step(w.w.f32()[from:to], w.g.f32()[from:to], from, to)
		return
	}
	mem := w.code.worker(worker)
	for a := from; a < to; a += stepTile {
		b := min(a+stepTile, to)
		g := w.g.part(mem, a, b)
		if w.round.Mode == graph.Exact {
			step(w.w.f32()[a:b], g, a, b)
			continue
		}
		x, y := floats(mem, w.scratch, b-a), floats(mem, w.scratch+stepTile*4, b-a)
		stored := w.w.u16()[a:b]
		simd.BF16ToF32(x, stored)
		if w.round.Mode == graph.Stochastic {
			step(x, g, a, b)
			words := unsafe.Slice((*uint32)(unsafe.Pointer(&mem[w.scratch+stepTile*4])), stepTile)
			simd.StochasticBF16(stored, x, words, w.round.Seed, philoxStream(w.round.Stream, uint32(w.t.scalar())), uint64(w.round.First+int64(a)))
			continue
		}
		rest := w.rest.u16()[a:b]
		simd.BF16ToF32(y, rest)
		simd.Add(x, x, y)
		step(x, g, a, b)
		simd.F32ToBF16(stored, x)
		simd.BF16ToF32(y, stored)
		simd.Sub(y, x, y)
		simd.F32ToBF16(rest, y)
	}
}
