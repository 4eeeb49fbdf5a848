package cpu

import (
	"math"

	"github.com/snug-ml/snug/engine/cpu/simd"
	"github.com/snug-ml/snug/engine/graph"
)

type headView struct {
	r      ref
	d      graph.DType
	stride int
	head   func(h int) int
}

func (hv headView) gather(dst []float32, b, t, h, k int) {
	o := operand{ref: hv.r, dtype: hv.d}
	for i := range t {
		src := o.load(dst[i*k:(i+1)*k], (b*t+i)*hv.stride+hv.head(h), 1)
		copy(dst[i*k:(i+1)*k], src)
	}
}

func (hv headView) scatter(src []float32, b, t, h, k int) {
	o := operand{ref: hv.r, dtype: hv.d}
	for i := range t {
		o.store(src[i*k:(i+1)*k], (b*t+i)*hv.stride+hv.head(h))
	}
}

func (c *compiler) views(op graph.Attention, vs []*graph.Value, k int) (q, kk, v headView) {
	mk := func(x *graph.Value, head func(h int) int) headView {
		return headView{c.ref(x), x.DType(), x.Shape().Last(), head}
	}
	H := op.Heads
	switch op.Layout {
	case graph.PackedHeads:
		return mk(vs[0], func(h int) int { return h * 3 * k }), mk(vs[0], func(h int) int { return h*3*k + k }), mk(vs[0], func(h int) int { return h*3*k + 2*k })
	case graph.PackedQKV:
		return mk(vs[0], func(h int) int { return h * k }), mk(vs[0], func(h int) int { return (H + h) * k }), mk(vs[0], func(h int) int { return (2*H + h) * k })
	}
	f := func(h int) int { return h * k }
	return mk(vs[0], f), mk(vs[1], f), mk(vs[2], f)
}

type attMask struct {
	op         graph.Attention
	lens, seg  ref
	rng        ref
	tq, tk, k  int
	hasL, hasS bool
}

func (c *compiler) mask(op graph.Attention, in []*graph.Value, tq, tk, k int) attMask {
	l, s, r := op.Optional()
	m := attMask{op: op, tq: tq, tk: tk, k: k, hasL: l >= 0, hasS: s >= 0}
	if l >= 0 {
		m.lens = c.ref(in[l])
	}
	if s >= 0 {
		m.seg = c.ref(in[s])
	}
	if r >= 0 {
		m.rng = c.ref(in[r])
	}
	return m
}

func (m *attMask) limit(b, i int) int {
	n := m.tk
	if m.hasL {
		n = min(n, int(m.lens.i32()[b]))
	}
	if m.op.Causal {
		n = max(0, min(n, i+n-m.tq+1))
	}
	return n
}

func (m *attMask) scores(s, q, k []float32, b, i int) int {
	n := m.limit(b, i)
	for j := range n {
		s[j] = simd.Dot(q[i*m.k:(i+1)*m.k], k[j*m.k:(j+1)*m.k]) * float32(m.op.Scale)
		if m.hasS && m.seg.i32()[b*m.tq+i] != m.seg.i32()[b*m.tq+j] {
			s[j] = float32(math.Inf(-1))
		}
	}
	return n
}

func (m *attMask) drop(mask []float32, b, h, i, n int) {
	simd.DropoutMask(mask[:n], m.op.Seed, randomStream(m.op.Stream, m.rng), uint64(((b*m.op.Heads+h)*m.tq+i)*m.tk), float32(1-m.op.Drop))
}

func (c *compiler) attention(n *graph.Node, op graph.Attention) ([]phase, error) {
	types := make([]graph.Type, len(n.In))
	for i, v := range n.In {
		types[i] = v.Type
	}
	B, tq, tk, k := op.Geometry(types)
	q, kv, vv := c.views(op, n.In, k)
	o := headView{c.ref(n.Out[0]), n.Out[0].DType(), n.Out[0].Shape().Last(), func(h int) int { return h * k }}
	lse := c.ref(n.Out[1])
	m := c.mask(op, n.In, tq, tk, k)
	need := (2*tq*k + 2*tk*k + 2*tk)
	c.need(0, need*4)
	code := c.code
	return []phase{{B * op.Heads, func(task, w int) {
		b, h := task/op.Heads, task%op.Heads
		mem := floats(code.worker(w), 0, need)
		cut := func(n int) []float32 { x := mem[:n]; mem = mem[n:]; return x }
		Q, O, K, V, s, dm := cut(tq*k), cut(tq*k), cut(tk*k), cut(tk*k), cut(tk), cut(tk)
		q.gather(Q, b, tq, h, k)
		kv.gather(K, b, tk, h, k)
		vv.gather(V, b, tk, h, k)
		for i := range tq {
			n := m.scores(s, Q, K, b, i)
			row := O[i*k : (i+1)*k]
			clear(row)
			z := float32(math.Inf(-1))
			if n > 0 {
				z = simd.LogSumExpRow(s[:n])
			}
			lse.f32()[(b*op.Heads+h)*tq+i] = z
			if math.IsInf(float64(z), -1) {
				continue
			}
			simd.AddScalar(s[:n], s[:n], -z)
			simd.Exp(s[:n], s[:n])
			if op.Drop > 0 {
				m.drop(dm, b, h, i, n)
				simd.Mul(s[:n], s[:n], dm[:n])
			}
			for j := range n {
				simd.Axpy(row, V[j*k:(j+1)*k], s[j])
			}
		}
		o.scatter(O, b, tq, h, k)
	}}}, nil
}

func (c *compiler) attentionGrad(n *graph.Node, og graph.AttentionGrad) ([]phase, error) {
	op := graph.Attention(og)
	in := n.In[3:]
	types := make([]graph.Type, len(in))
	for i, v := range in {
		types[i] = v.Type
	}
	B, tq, tk, k := op.Geometry(types)
	q, kv, vv := c.views(op, in, k)
	dq, dk, dv := c.views(op, n.Out, k)
	flat := func(h int) int { return h * k }
	do := headView{c.ref(n.In[0]), n.In[0].DType(), n.In[0].Shape().Last(), flat}
	o := headView{c.ref(n.In[1]), n.In[1].DType(), n.In[1].Shape().Last(), flat}
	lse := c.ref(n.In[2])
	m := c.mask(op, in, tq, tk, k)
	need := (4*tq*k + 4*tk*k + 2*tk)
	c.need(0, need*4)
	code := c.code
	return []phase{{B * op.Heads, func(task, w int) {
		b, h := task/op.Heads, task%op.Heads
		mem := floats(code.worker(w), 0, need)
		cut := func(n int) []float32 { x := mem[:n]; mem = mem[n:]; return x }
		Q, O, DO, DQ, K, V, DK, DV, s, dm := cut(tq*k), cut(tq*k), cut(tq*k), cut(tq*k), cut(tk*k), cut(tk*k), cut(tk*k), cut(tk*k), cut(tk), cut(tk)
		q.gather(Q, b, tq, h, k)
		o.gather(O, b, tq, h, k)
		do.gather(DO, b, tq, h, k)
		kv.gather(K, b, tk, h, k)
		vv.gather(V, b, tk, h, k)
		clear(DQ)
		clear(DK)
		clear(DV)
		for i := range tq {
			z := lse.f32()[(b*op.Heads+h)*tq+i]
			if math.IsInf(float64(z), -1) {
				continue
			}
			n := m.scores(s, Q, K, b, i)
			simd.AddScalar(s[:n], s[:n], -z)
			simd.Exp(s[:n], s[:n])
			dor := DO[i*k : (i+1)*k]
			delta := simd.Dot(dor, O[i*k:(i+1)*k])
			if op.Drop > 0 {
				m.drop(dm, b, h, i, n)
			}
			for j := range n {
				p, g := s[j], float32(1)
				if op.Drop > 0 {
					g = dm[j]
				}
				if p == 0 {
					continue
				}
				simd.Axpy(DV[j*k:(j+1)*k], dor, p*g)
				ds := p * (simd.Dot(dor, V[j*k:(j+1)*k])*g - delta) * float32(op.Scale)
				simd.Axpy(DQ[i*k:(i+1)*k], K[j*k:(j+1)*k], ds)
				simd.Axpy(DK[j*k:(j+1)*k], Q[i*k:(i+1)*k], ds)
			}
		}
		dq.scatter(DQ, b, tq, h, k)
		dk.scatter(DK, b, tk, h, k)
		dv.scatter(DV, b, tk, h, k)
	}}}, nil
}
