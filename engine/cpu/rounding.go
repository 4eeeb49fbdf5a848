package cpu

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// stepTile is how many elements of a weight of 16 bits are float32 at a time, in a
// scratch that stays in cache, while an optimizer works on them. It is even, as
// [simd.StochasticBF16] wants it.
const stepTile = 1024

// trained is a weight as an optimizer's step reads and writes it.
type trained struct {
	w, rest, t ref // rest is what the weight could not hold, t the number of the update
	round      graph.Rounding
	code       *Code
	scratch    int // where a worker's begins
}

// trained is the weight of an optimizer's node. Of the workers' scratch, the step itself
// takes the first bytes.
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

// each lets step change elements from to to in float32, some at a time.
func (w *trained) each(from, to, worker int, step func(x []float32, from, to int)) {
	if w.round.Mode == graph.Exact {
		step(w.w.f32()[from:to], from, to)
		return
	}
	for a := from; a < to; a += stepTile {
		b := min(a+stepTile, to)
		mem := w.code.worker(worker)
		x, y := floats(mem, w.scratch, b-a), floats(mem, w.scratch+stepTile*4, b-a)
		stored := w.w.u16()[a:b]
		simd.BF16ToF32(x, stored)
		if w.round.Mode == graph.Stochastic {
			step(x, a, b)
			words := unsafe.Slice((*uint32)(unsafe.Pointer(&mem[w.scratch+stepTile*4])), stepTile)
			simd.StochasticBF16(stored, x, words, w.round.Seed, uint64(uint32(w.t.scalar()))<<32|uint64(w.round.Stream), uint64(a))
			continue
		}
		rest := w.rest.u16()[a:b]
		simd.BF16ToF32(y, rest)
		simd.Add(x, x, y)
		step(x, a, b)
		simd.F32ToBF16(stored, x)
		simd.BF16ToF32(y, stored)
		simd.Sub(y, x, y)
		simd.F32ToBF16(rest, y)
	}
}
