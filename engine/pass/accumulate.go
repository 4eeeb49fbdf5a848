package pass

import (
	"cmp"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// accumulate sums gradients where they are computed. Whatever is added to a state (the
// gradient of several micro-batches) is added at once, by the operation that computes it
// if it can (a matmul, an embedding's or a loss's gradient), so that no gradient has a
// tensor of its own; and the gradient of an embedding starts from the gradient of another
// use of the table.
//
// A sum that starts from the state instead of being added to it is rounded differently:
// this is the only pass that changes bits, within the error of any float32 sum.
func accumulate(u *Unit) error {
	a := &accumulator{newDefUse(u.F), make([]func(*rebuilder), len(u.F.Nodes)), make([][]func(*rebuilder), len(u.F.Nodes))}
	for _, n := range u.F.Nodes {
		if op, ok := n.Op.(graph.Assign); ok && op.Add {
			a.state(n)
		}
	}
	for i, n := range u.F.Nodes {
		if op, ok := n.Op.(graph.EmbeddingGrad); ok && a.instead[i] == nil && len(n.In) == 2 {
			a.table(n, op)
		}
	}
	for i, after := range a.after {
		if len(after) == 0 {
			continue
		}
		run := a.instead[i]
		a.instead[i] = func(r *rebuilder) {
			if run == nil {
				r.copy(u.F.Nodes[i])
			} else {
				run(r)
			}
			for _, f := range after {
				f(r)
			}
		}
	}
	f, err := rebuild(u.F, a.instead)
	if err == nil {
		u.F = f
	}
	return err
}

type accumulator struct {
	*defUse
	instead []func(r *rebuilder)   // replaces the node at a position
	after   [][]func(r *rebuilder) // runs after it
}

// part is one summand of a gradient.
type part struct {
	seen *graph.Value
	n    *graph.Node // computes it
}

// parts splits a gradient into the summands that nothing else reads; sums are the
// additions between them.
func (a *accumulator) parts(v *graph.Value) (parts []part, sums []*graph.Node) {
	n := graph.Storage(v).Node
	if n == nil {
		return []part{{v, nil}}, nil
	}
	e, ok := n.Op.(graph.Elementwise)
	if !ok || e.Fn != graph.FnAdd || !a.private(v) || n.Out[0].DType() != graph.F32 {
		return []part{{v, n}}, nil
	}
	sums = []*graph.Node{n}
	for _, x := range n.In {
		if x.DType() != graph.F32 || x.Shape().Elems() != v.Shape().Elems() || graph.Storage(n.In[0]) == graph.Storage(n.In[1]) {
			return []part{{v, n}}, nil
		}
		p, s := a.parts(x)
		parts, sums = append(parts, p...), append(sums, s...)
	}
	return parts, sums
}

// private reports whether exactly one node reads v.
func (a *accumulator) private(v *graph.Value) bool {
	s := graph.Storage(v)
	return !a.pinned[s.ID] && len(a.readers.of(s.ID)) == 1
}

// adder returns the operation that adds p to a state by itself.
func (a *accumulator) adder(p part, state graph.Type) graph.Op {
	if p.n == nil || !a.private(p.seen) || a.instead[a.position.of(p.n)] != nil || !graph.Storage(p.seen).Type.Equal(state) {
		return nil
	}
	switch op := p.n.Op.(type) {
	case graph.MatMul:
		if op.Body == nil && !op.Accumulate && len(state.Shape) == 2 {
			op.Accumulate = true
			return op
		}
	case graph.EmbeddingGrad:
		if len(p.n.In) == 2 {
			op.Accumulate = true
			return op
		}
	case graph.LinearCrossEntropyGrad:
		if len(p.n.In) == 5 && graph.Storage(p.seen).Index == 2 {
			return op
		}
	}
	return nil
}

// state makes the summands of what n adds to a state go there one by one, each as soon as
// it is computed.
func (a *accumulator) state(n *graph.Node) {
	g, i := n.In[0], a.position.of(n)
	parts, sums := a.parts(n.In[1])
	if !slices.ContainsFunc(parts, func(p part) bool { return a.adder(p, g.Type) != nil }) {
		parts, sums = []part{{n.In[1], graph.Storage(n.In[1]).Node}}, nil
	}
	for _, p := range parts {
		// The state must be available, and nothing may still need its old value.
		if p.n == nil || g.Node != nil && a.position.of(g.Node) >= a.position.of(p.n) ||
			slices.ContainsFunc(a.readers.of(g.ID), func(j int) bool { return j != i && j >= a.position.of(p.n) }) {
			return
		}
	}
	slices.SortStableFunc(parts, func(p, q part) int { return cmp.Compare(a.position.of(p.n), a.position.of(q.n)) })
	next := g // the old value that corresponds to the state's current version
	for k, p := range parts {
		result := n.Out[0]
		if k < len(parts)-1 {
			result = a.f.NewValue(g.Type)
		}
		version := next
		at := a.position.of(p.n)
		if op := a.adder(p, g.Type); op != nil {
			out := graph.Storage(p.seen).Index
			a.instead[at] = func(r *rebuilder) {
				made := r.b.Emit(op, append(r.all(p.n.In), r.now[version.ID])...)
				for j, v := range p.n.Out {
					r.now[v.ID] = made[j]
				}
				r.now[result.ID] = made[out]
			}
		} else {
			a.after[at] = append(a.after[at], func(r *rebuilder) {
				in := append([]*graph.Value{r.now[version.ID], r.value(p.seen)}, r.all(n.In[2:])...)
				r.now[result.ID] = r.b.Emit(n.Op, in...)[0]
			})
		}
		next = result
	}
	for _, s := range sums {
		a.instead[a.position.of(s)] = leaveOut
	}
	a.instead[i] = leaveOut
}

// table makes the gradient n of a table start from the gradient that it is added to.
func (a *accumulator) table(n *graph.Node, op graph.EmbeddingGrad) {
	if !a.private(n.Out[0]) {
		return
	}
	j := a.readers.of(n.Out[0].ID)[0]
	sum := a.f.Nodes[j]
	e, ok := sum.Op.(graph.Elementwise)
	if !ok || e.Fn != graph.FnAdd || a.instead[j] != nil || sum.Out[0].DType() != graph.F32 {
		return
	}
	other := sum.In[0]
	if graph.Storage(other) == n.Out[0] {
		other = sum.In[1]
	}
	s := graph.Storage(other)
	if s == n.Out[0] || !other.Type.Equal(n.Out[0].Type) || s.Node != nil && a.position.of(s.Node) > a.position.of(n) {
		return
	}
	a.instead[a.position.of(n)] = func(r *rebuilder) {
		r.replace(sum.Out, r.b.Emit(op, r.value(n.In[0]), r.value(n.In[1]), r.value(other)))
	}
	a.instead[j] = leaveOut
}
