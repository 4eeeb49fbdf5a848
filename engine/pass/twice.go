package pass

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// twice is the pass: if gradients are scaled by something that depends on all of them, u.Twice,
// it computes the backward half twice, so that they never exist all at once. The first time
// keeps only the norm of each gradient; the second time gradients are consumed one by one.
// Values do not change.
func twice(u *Unit) error {
	if u.Twice == "" {
		return nil
	}
	f, err := doubled(u.F, u.Twice)
	if err == nil {
		u.F = f
	}
	return err
}

// doubled returns f with clones of the backward nodes that compute gradients for norms before all others.
func doubled(f *graph.Func, name string) (*graph.Func, error) {
	norm := f.Output(name)
	if norm == nil {
		return nil, fmt.Errorf("no output is called %q", name)
	}
	first := make([]bool, f.NumValues()) // the norm depends on it
	cloned := make([]bool, f.NumValues())
	first[norm.ID] = true
	var mark func(v *graph.Value)
	mark = func(v *graph.Value) {
		if v.Node == nil || !v.Node.Backward || cloned[v.Node.Out[0].ID] {
			return
		}
		cloned[v.Node.Out[0].ID] = true
		for _, w := range v.Node.In {
			mark(w)
		}
	}
	for _, n := range slices.Backward(f.Nodes) {
		if !n.Backward || !slices.ContainsFunc(n.Out, func(v *graph.Value) bool { return first[v.ID] }) {
			continue
		}
		for _, v := range n.In {
			first[v.ID] = true
			if _, ok := n.Op.(graph.GlobalNorm); ok && len(v.Shape()) > 0 {
				mark(v)
			}
		}
	}
	g := f.Shallow()
	g.Nodes = make([]*graph.Node, 0, 2*len(f.Nodes))
	g.Outputs = slices.Clone(f.Outputs)
	// The replacements of values in the first of the two backward halves, and afterwards.
	once, now := make([]*graph.Value, f.NumValues()), make([]*graph.Value, f.NumValues())
	emit := func(n *graph.Node, from []*graph.Value, to ...[]*graph.Value) *graph.Node {
		in := make([]*graph.Value, len(n.In))
		for i, v := range n.In {
			if in[i] = from[v.ID]; in[i] == nil {
				in[i] = v
			}
		}
		m := g.Copy(n, in)
		for i, v := range n.Out {
			for _, values := range to {
				values[v.ID] = m.Out[i]
			}
		}
		g.Nodes = append(g.Nodes, m)
		return m
	}
	var rest []*graph.Node
	waits := make([]bool, f.NumValues()) // for the second half
	for _, n := range f.Nodes {
		switch {
		case cloned[n.Out[0].ID]:
			if graph.HasEffect(n.Op, len(n.In)) {
				return nil, fmt.Errorf("%s writes a state on the way to %s", n.Out[0].Label(), name)
			}
			m := emit(n, once, once)
			m.Clone = true
			for _, v := range m.Out {
				v.Name = ""
			}
		case n.Backward && slices.ContainsFunc(n.Out, func(v *graph.Value) bool { return first[v.ID] }):
			emit(n, once, once, now)
			continue
		case !n.Backward && !slices.ContainsFunc(n.In, func(v *graph.Value) bool { return waits[v.ID] }):
			g.Nodes = append(g.Nodes, n)
			continue
		}
		rest = append(rest, n)
		for _, v := range n.Out {
			waits[v.ID] = true
		}
	}
	for _, n := range rest {
		emit(n, now, now)
	}
	for i, o := range g.Outputs {
		if v := now[o.Value.ID]; v != nil {
			g.Outputs[i].Value = v
		}
	}
	return g, nil
}
