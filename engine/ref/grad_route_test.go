package ref_test

import (
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

func TestGradTopK(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		s := p.shape(1, 3)
		order := p.rng.Perm(int(s.Elems())) // no ties, which differences would cross
		next := -1
		x := p.operand(s, func() float64 { next++; return 0.1 * float64(order[next]) })
		values, _ := p.TopK(x, p.int("k", 1, s.Last()))
		return []*graph.Value{values}
	})
}

func TestGradGather(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		s := p.shape(1, 3)
		index := s.Clone()
		index[len(s)-1] = p.int("k", 1, 4)
		return []*graph.Value{p.Gather(p.x(s...), p.ints(0, s.Last()-1, index...))}
	})
}

func TestGradScatter(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		s, n := p.shape(1, 3), p.int("n", 1, 4)
		return []*graph.Value{p.Scatter(p.x(s...), p.ints(0, n-1, s...), n)}
	})
}

// routing draws choices of k among experts, with or without capacity.
func (p *probe) routing(n, k, experts int) graph.Routing {
	return p.Route(graph.Route{Experts: experts, Capacity: p.int("capacity", 0, 3)}, p.ints(0, experts-1, n, k))
}

// A whole mixture of experts: every operation of the routing.
func TestGradExperts(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		n, k, experts, d, f := p.int("n", 1, 4), p.int("k", 1, 2), p.int("experts", 1, 3), p.int("d", 1, 3), p.int("f", 1, 3)
		r := p.routing(n, k, experts)
		h := p.Dispatch(p.x(n, d), r)
		h = p.GroupedLinear(h, p.x(experts, f, d), p.full(experts, f), r)
		h = p.GroupedLinear(p.Tanh(h), p.x(experts, d, f), nil, r)
		return []*graph.Value{p.Combine(h, p.full(n, k), r)}
	})
}

func TestGradGroupedMatMul(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		n, k, experts := p.int("n", 1, 3), p.int("k", 1, 3), p.int("experts", 1, 3)
		r := p.routing(p.int("rows", 1, 5), 1, experts)
		x := p.x(r.Source.Shape()[0], k)
		return p.Emit(graph.GroupedMatMul{}, x, p.x(experts, k, n), r.Offsets)
	})
}

// Dispatching and combining are each other's adjoint, with weights or without.
func TestGradDispatchCombine(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		n, k, d := p.int("n", 1, 4), p.int("k", 1, 2), p.int("d", 1, 3)
		r := p.routing(n, k, 2)
		rows := p.Emit(graph.Dispatch{Weighted: true}, p.x(n, d), r.Slot, r.Source, p.full(n, k))[0]
		return []*graph.Value{rows, p.Emit(graph.Combine{}, p.x(rows.Shape()...), r.Slot, r.Source)[0]}
	})
}

func TestGradSelectiveScan(t *testing.T) {
	gradient(t, func(p *probe) []*graph.Value {
		n, steps, d, s := p.int("n", 1, 2), p.int("t", 1, 5), p.int("d", 1, 3), p.int("s", 1, 3)
		positive := func(dims ...int) *graph.Value { // steps are positive, decays below 1
			v := p.declare(graph.T(graph.F32, dims...), p.rng.Float64)
			p.wrt = append(p.wrt, v)
			return v
		}
		u, dt, a := p.full(n, steps, d), positive(n, steps, d), p.Neg(positive(d, s))
		op := graph.SelectiveScan{Chunk: p.int("chunk", 1, 6)}
		return p.Emit(op, u, dt, a, p.full(n, steps, s), p.full(n, steps, s), p.full(d))[:1]
	})
}
