package cpu

import (
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// relateStrip is how many channels a task of a relation handles: a row of them stays in
// registers and the first-level cache through a whole batch row.
const relateStrip = 128

// relation is the data that the tasks of one relation share.
type relation struct {
	op            graph.Relate
	segment       ref
	t, d, strips  int
	tasks, floats int
}

func (c *compiler) relation(op graph.Relate, p, segment *graph.Value, vectors int) *relation {
	s := p.Shape()
	r := &relation{op: op, segment: c.ref(segment), t: s[1], d: s[2]}
	r.strips = (r.d + relateStrip - 1) / relateStrip
	r.tasks, r.floats = s[0]*r.strips, vectors*relateStrip
	c.need(0, 4*(r.floats+r.t+op.To-op.From))
	return r
}

// chain returns, for each position of batch row b, the previous position of the same
// segment (-1: none; -2: the position is not related), in scratch.
func (r *relation) chain(scratch []byte, b int) []int32 {
	before := ints(scratch[4*r.floats:], r.t+r.op.To-r.op.From)
	before, last := before[:r.t], before[r.t:]
	for i := range last {
		last[i] = -1
	}
	for i, s := range r.segment.i32()[b*r.t : (b+1)*r.t] {
		k := int(s) - r.op.From
		if k < 0 || k >= len(last) {
			before[i] = -2
			continue
		}
		before[i], last[k] = last[k], int32(i)
	}
	return before
}

// strip returns where the channels of a task begin and how many they are.
func (r *relation) strip(task int) (b, from, n int) {
	from = task % r.strips * relateStrip
	return task / r.strips, from, min(relateStrip, r.d-from)
}

func (c *compiler) relate(n *graph.Node, op graph.Relate) ([]phase, error) {
	p, q, y := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	r := c.relation(op, n.In[0], n.In[2], 1)
	code := c.code
	return []phase{{r.tasks, func(task, w int) {
		b, from, k := r.strip(task)
		before, pair := r.chain(code.worker(w), b), floats(code.worker(w), 0, k)
		at := func(x ref, i int) []float32 { return x.f32()[(b*r.t+i)*r.d+from:][:k] }
		for i := range r.t {
			sum := at(y, i)
			clear(sum)
			if before[i] == -2 {
				continue
			}
			own, count := at(p, i), 0
			for j := i; j >= 0; j = int(before[j]) {
				simd.Add(pair, own, at(q, j))
				simd.Relu(pair, pair)
				simd.Add(sum, sum, pair)
				count++
			}
			simd.MulScalar(sum, sum, 1/float32(count))
		}
	}}}, nil
}

func (c *compiler) relateGrad(n *graph.Node, op graph.Relate) ([]phase, error) {
	dy, p, q := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.In[2])
	dp, dq := c.ref(n.Out[0]), c.ref(n.Out[1])
	r := c.relation(op, n.In[1], n.In[3], 2)
	code := c.code
	return []phase{{r.tasks, func(task, w int) {
		b, from, k := r.strip(task)
		before := r.chain(code.worker(w), b)
		pair, share := floats(code.worker(w), 0, k), floats(code.worker(w), 4*relateStrip, k)
		at := func(x ref, i int) []float32 { return x.f32()[(b*r.t+i)*r.d+from:][:k] }
		for i := range r.t {
			clear(at(dq, i))
		}
		for i := range r.t {
			sum := at(dp, i)
			clear(sum)
			if before[i] == -2 {
				continue
			}
			count := 0
			for j := i; j >= 0; j = int(before[j]) {
				count++
			}
			own := at(p, i)
			simd.MulScalar(share, at(dy, i), 1/float32(count))
			for j := i; j >= 0; j = int(before[j]) {
				simd.Add(pair, own, at(q, j))
				simd.ReluGrad(pair, pair, share)
				simd.Add(sum, sum, pair)
				simd.Add(at(dq, j), at(dq, j), pair)
			}
		}
	}}}, nil
}
