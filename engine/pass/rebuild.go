package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// rebuilder writes the function in which clusters are nodes.
type rebuilder struct {
	*fuser
	b   *graph.Builder
	now []*graph.Value // what stands for each old value, by ID
}

// rebuild gives the function with its clusters as nodes; the old one stays as it is.
func (z *fuser) rebuild() (f *graph.Func, err error) {
	g := *z.f
	g.Nodes = make([]*graph.Node, 0, len(z.f.Nodes))
	g.Outputs = slices.Clone(z.f.Outputs)
	r := &rebuilder{fuser: z, b: graph.Extend(&g), now: make([]*graph.Value, z.f.NumValues())}
	for _, v := range slices.Concat(g.Inputs, g.States) {
		r.now[v.ID] = v
	}
	err = graph.Catch(func() {
		for i, n := range z.f.Nodes {
			switch c := z.of[i]; {
			case graph.IsView(n.Op): // where it is read
			case c == nil || c.base == nil && len(c.nodes) == 1:
				r.copy(n)
			case c.at == i:
				r.b.At(n, func() { r.emit(c) })
			}
		}
	})
	for i, o := range g.Outputs {
		g.Outputs[i].Value = r.value(o.Value)
	}
	dropDead(&g)
	return &g, err
}

// copy copies a node that stays what it was.
func (r *rebuilder) copy(n *graph.Node) {
	m := *n
	m.In = r.all(n.In)
	m.Out = make([]*graph.Value, len(n.Out))
	for i, v := range n.Out {
		w := r.b.F.NewValue(v.Type)
		w.Name, w.Node, w.Index, w.State = v.Name, &m, v.Index, v.State
		m.Out[i], r.now[v.ID] = w, w
	}
	r.b.F.Nodes = append(r.b.F.Nodes, &m)
}

// value is what stands for an old value. A view is made when it is first read:
// what it looks at may have moved.
func (r *rebuilder) value(old *graph.Value) *graph.Value {
	if r.now[old.ID] == nil {
		if !graph.IsView(old.Node.Op) {
			r.b.Failf("%s is read before it is computed", old.Label())
		}
		r.copy(old.Node)
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

// inputs are the operands of a body, seen in the shapes that it wants.
func (r *rebuilder) inputs(sources []source) []*graph.Value {
	vs := make([]*graph.Value, len(sources))
	for i, s := range sources {
		vs[i] = r.value(s.seen)
		if !vs[i].Shape().Equal(s.shape) {
			vs[i] = r.b.Reshape(r.value(s.stored), s.shape...)
		}
	}
	return vs
}

// emit emits the node that c becomes, and what gives its results the shapes
// that their readers know.
func (r *rebuilder) emit(c *cluster) {
	var out []*graph.Value
	results := r.results(c)
	switch {
	case c.base == nil:
		out = r.emitLoop(c)
	default:
		switch c.base.Op.(type) {
		case graph.MatMul:
			out = r.emitProduct(c)
		case graph.LayerNormGrad:
			out = r.emitNormGrad(c)
			for i, v := range c.base.Out[1:] {
				r.now[v.ID] = out[i+1]
			}
		}
	}
	for i, v := range results {
		r.now[v.ID] = r.b.Reshape(out[i], v.Shape()...)
		r.now[v.ID].Name = v.Name
	}
}
