package ref

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// The roles of the vectors of one head.
const (
	query = iota
	key
	value
)

// attn is one attention call: where its vectors are and what is masked.
type attn struct {
	op               graph.Attention
	batch, tq, tk, k int
	vectors          []tensor  // q, k, v or the packed operand
	lens, segs       []float64 // nil where not enabled
	rng              tensor
}

func newAttn(op graph.Attention, in []tensor) *attn {
	types := make([]graph.Type, len(in))
	for i, t := range in {
		types[i] = t.Type
	}
	a := &attn{op: op, vectors: in[:op.Arity()]}
	a.batch, a.tq, a.tk, a.k = op.Geometry(types)
	lens, segs, rng := op.Optional()
	if lens >= 0 {
		a.lens = in[lens].data
	}
	if segs >= 0 {
		a.segs = in[segs].data
	}
	if rng >= 0 {
		a.rng = in[rng]
	}
	return a
}

// of returns the vector of a role at position t of head h, within data laid out like the
// operands (the operands themselves, or their gradients).
func (a *attn) of(data [][]float64, role, b, t, h int) []float64 {
	H, K := a.op.Heads, a.k
	var at int
	switch a.op.Layout {
	case graph.PackedHeads:
		at = ((b*a.tq+t)*H+h)*3*K + role*K
	case graph.PackedQKV:
		at = ((b*a.tq+t)*3+role)*H*K + h*K
	default:
		n, heads := a.tk, a.op.Groups()
		if role == query {
			n, heads = a.tq, H
		}
		return data[role][((b*n+t)*heads+h*heads/H)*K:][:K]
	}
	return data[0][at:][:K]
}

// operands are the elements of q, k, v or the packed operand.
func (a *attn) operands() [][]float64 {
	data := make([][]float64, len(a.vectors))
	for i, t := range a.vectors {
		data[i] = t.data
	}
	return data
}

// sees reports whether query i may look at key j.
func (a *attn) sees(b, i, j int) bool {
	n := a.tk
	if a.lens != nil {
		n = int(a.lens[b])
	}
	if j >= n || a.op.Causal && j > i+max(n-a.tq, 0) {
		return false
	}
	return a.segs == nil || a.segs[b*a.tq+i] == a.segs[b*a.tk+j]
}

// drop is the dropout factor of the weight of query i for key j.
func (a *attn) drop(b, h, i, j int) float64 {
	if a.op.Drop == 0 {
		return 1
	}
	e := ((uint64(b)*uint64(a.op.Heads)+uint64(h))*uint64(a.tq)+uint64(i))*uint64(a.tk) + uint64(j)
	return mask(a.op.Drop, a.op.Seed, e, a.op.Stream, a.rng)
}

func dot(x, y []float64) float64 {
	s := 0.0
	for i := range x {
		s += x[i] * y[i]
	}
	return s
}

// axpy adds c*x to y.
func axpy(c float64, x, y []float64) {
	for i := range x {
		y[i] += c * x[i]
	}
}

// rows calls fn for every batch row, head and query.
func (a *attn) rows(fn func(b, h, i int)) {
	for b := range a.batch {
		for h := range a.op.Heads {
			for i := range a.tq {
				fn(b, h, i)
			}
		}
	}
}

// scores returns Scale q k for the keys that query i sees, -Inf for the others.
func (a *attn) scores(data [][]float64, b, h, i int) []float64 {
	s := make([]float64, a.tk)
	q := a.of(data, query, b, i, h)
	for j := range s {
		s[j] = math.Inf(-1)
		if a.sees(b, i, j) {
			s[j] = a.op.Scale * dot(q, a.of(data, key, b, j, h))
		}
	}
	return s
}

func attention(op graph.Attention, in []tensor, out []graph.Type) [][]float64 {
	a := newAttn(op, in)
	data := a.operands()
	o := make([]float64, out[0].Shape.Elems())
	var lses []float64
	a.rows(func(b, h, i int) {
		s := a.scores(data, b, h, i)
		lse := logSumExp(s)
		lses = append(lses, lse)
		oi := o[((b*a.tq+i)*op.Heads+h)*a.k:][:a.k]
		for j := range s {
			if a.sees(b, i, j) {
				axpy(math.Exp(s[j]-lse)*a.drop(b, h, i, j), a.of(data, value, b, j, h), oi)
			}
		}
	})
	return [][]float64{o, lses}
}

// attentionGrad: operands do, o, lse and those of Attention. With p the softmax
// weights and d their dropout factors, dv_j = sum_i p d do_i, and
// ds = p (d do_i.v_j - do_i.o_i) gives dq_i = Scale sum_j ds k_j and
// dk_j = Scale sum_i ds q_i (Dao et al. 2022, section B.2).
func attentionGrad(op graph.Attention, in []tensor) [][]float64 {
	a := newAttn(op, in[3:])
	data := a.operands()
	grad := make([][]float64, len(data))
	for i := range data {
		grad[i] = make([]float64, len(data[i]))
	}
	a.rows(func(b, h, i int) {
		s := a.scores(data, b, h, i)
		lse := in[2].data[(b*op.Heads+h)*a.tq+i]
		at := ((b*a.tq+i)*op.Heads + h) * a.k
		do, o := in[0].data[at:][:a.k], in[1].data[at:][:a.k]
		for j := range s {
			if !a.sees(b, i, j) {
				continue
			}
			p, d := math.Exp(s[j]-lse), a.drop(b, h, i, j)
			ds := p * (d*dot(do, a.of(data, value, b, j, h)) - dot(do, o))
			axpy(p*d, do, a.of(grad, value, b, j, h))
			axpy(op.Scale*ds, a.of(data, key, b, j, h), a.of(grad, query, b, i, h))
			axpy(op.Scale*ds, a.of(data, query, b, i, h), a.of(grad, key, b, j, h))
		}
	})
	return grad
}
