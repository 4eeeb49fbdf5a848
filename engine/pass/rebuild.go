package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// rebuilder builds a function again.
type rebuilder struct {
	b   *graph.Builder
	now []*graph.Value // what replaces each old value, by ID
	in  []*graph.Value // operands of the node that is copied
}

// rebuild builds f again and leaves f unchanged. A function in instead at a node's
// position is called instead of copying the node: it must set r.now for the results that
// are read from there on.
func rebuild(f *graph.Func, instead []func(r *rebuilder)) (*graph.Func, error) {
	g := f.Shallow()
	g.Nodes = make([]*graph.Node, 0, len(f.Nodes))
	g.Outputs = slices.Clone(f.Outputs)
	r := &rebuilder{b: graph.Extend(g), now: make([]*graph.Value, f.NumValues())}
	for _, v := range slices.Concat(g.Inputs, g.States) {
		r.now[v.ID] = v
	}
	err := graph.Catch(func() {
		for i, n := range f.Nodes {
			switch {
			case graph.IsView(n.Op): // made where it is first read
			case instead[i] != nil:
				r.b.At(n, func() { instead[i](r) })
			default:
				r.copy(n)
			}
		}
		for i, o := range g.Outputs {
			g.Outputs[i].Value = r.value(o.Value)
		}
	})
	dropDead(g)
	return g, err
}

// replaced rebuilds f with what stands for some of its nodes: a function for each, nil where the node stays. It returns
// f itself where all stay.
func replaced(f *graph.Func, by func(i int, n *graph.Node) func(r *rebuilder)) (*graph.Func, error) {
	instead, some := make([]func(r *rebuilder), len(f.Nodes)), false
	for i, n := range f.Nodes {
		instead[i] = by(i, n)
		some = some || instead[i] != nil
	}
	if !some {
		return f, nil
	}
	return rebuild(f, instead)
}

// leaveOut stands for a node that is dropped.
func leaveOut(*rebuilder) {}

// copy copies a node unchanged.
func (r *rebuilder) copy(n *graph.Node) {
	r.in = r.in[:0]
	for _, v := range n.In {
		r.in = append(r.in, r.value(v))
	}
	m := r.b.F.Copy(n, r.in)
	for i, v := range n.Out {
		r.now[v.ID] = m.Out[i]
	}
	r.b.F.Nodes = append(r.b.F.Nodes, m)
}

// value returns the replacement of an old value. A view is made when it is first read,
// since its storage may have moved, and directly on the storage.
func (r *rebuilder) value(old *graph.Value) *graph.Value {
	if r.now[old.ID] == nil {
		s := graph.Storage(old)
		if s == old {
			r.b.Failf("%s is read before it is computed", old.Label())
		}
		of := r.value(s)
		r.b.At(old.Node, func() { r.now[old.ID] = r.b.Reshape(of, old.Shape()...) })
	}
	return r.now[old.ID]
}

func (r *rebuilder) all(old []*graph.Value) []*graph.Value {
	vs := make([]*graph.Value, len(old))
	for i, v := range old {
		vs[i] = r.value(v)
	}
	return vs
}

// replace replaces the old values by vs, in the shapes that their readers expect.
func (r *rebuilder) replace(old, vs []*graph.Value) {
	for i, v := range old {
		w := r.b.Reshape(vs[i], v.Shape()...)
		if w.Node != nil && w.Name == "" {
			w.Name = v.Name
		}
		r.now[v.ID] = w
	}
}
