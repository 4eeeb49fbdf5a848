package pass

import (
	"encoding/binary"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// simplify drops unused values, shares what is computed twice, folds
// scalar constants and removes operations that change nothing.
func simplify(u *Unit) error {
	seen := make(map[string][]*graph.Value, len(u.F.Nodes))
	var k []byte
	f, err := u.F.Rewrite(func(b *graph.Builder, n *graph.Node, in []*graph.Value) []*graph.Value {
		if graph.HasEffect(n.Op, len(in)) {
			return nil
		}
		if v := identity(n, in); v != nil {
			return []*graph.Value{v}
		}
		op := n.Op
		c, folded := fold(n, in)
		if folded {
			op, in = graph.Constant{V: c}, nil
		}
		k = graph.AppendKey(k[:0], op)
		for _, v := range in {
			k = binary.LittleEndian.AppendUint32(k, uint32(v.ID))
		}
		out := seen[string(k)]
		if out == nil {
			if folded {
				out = b.Emit(op)
			} else {
				out = b.Again(n, in)
			}
			seen[string(k)] = out
		}
		return out
	})
	if err != nil {
		return err
	}
	joinLoss(f)
	dropDead(f)
	u.F = f
	return nil
}

// identity returns the operand that n merely passes on, or nil. A copy of a state or of a
// view of one is kept: it holds the state as it was before a write.
func identity(n *graph.Node, in []*graph.Value) *graph.Value {
	switch op := n.Op.(type) {
	case graph.Elementwise:
		if in[0].Type.Equal(n.Out[0].Type) && graph.Storage(in[0]).State == nil {
			switch {
			case op.Fn == graph.FnCopy, op.Fn == graph.FnMulC && op.Alpha == 1, op.Fn == graph.FnAddC && op.Alpha == 0:
				return in[0]
			}
		}
	case graph.Reshape:
		// A view of a view is a view of the whole.
		if p := in[0].Node; p != nil {
			if _, ok := p.Op.(graph.Reshape); ok {
				in[0] = p.In[0]
			}
		}
		if in[0].Shape().Equal(op.Shape) && graph.Storage(in[0]).State == nil {
			return in[0]
		}
	}
	return nil
}

// fold evaluates an elementwise function of scalar constants.
func fold(n *graph.Node, in []*graph.Value) (float64, bool) {
	e, ok := n.Op.(graph.Elementwise)
	if !ok || len(n.Out[0].Shape()) != 0 || n.Out[0].DType() != graph.F32 {
		return 0, false
	}
	var x [3]float64
	for i, v := range in {
		if v.Node == nil {
			return 0, false
		}
		c, ok := v.Node.Op.(graph.Constant)
		if !ok {
			return 0, false
		}
		x[i] = c.V
	}
	return e.Fn.Eval(e.Alpha, x[0], x[1], x[2]), true
}

// joinLoss makes the gradient of a chunked cross-entropy, which computes the loss on its
// way, also provide the loss: one matmul less.
func joinLoss(f *graph.Func) {
	type site struct {
		n  *graph.Node
		at int
	}
	var forward []site
	for i, n := range f.Nodes {
		switch op := n.Op.(type) {
		case graph.LinearCrossEntropy:
			forward = append(forward, site{n, i})
		case graph.LinearCrossEntropyGrad:
			for _, s := range forward {
				if s.n.Op.(graph.LinearCrossEntropy).Chunk == op.Chunk && sameOperands(s.n.In, n.In[:4]) {
					hoistGrad(f, s.n, s.at, n, i)
					break
				}
			}
		}
	}
}

func sameOperands(a, b []*graph.Value) bool {
	for i := range b {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// hoistGrad moves the gradient g, at position gi, to the place of the forward node n at
// position ni, with what its seed needs, unless that needs the loss.
func hoistGrad(f *graph.Func, n *graph.Node, ni int, g *graph.Node, gi int) {
	after := map[*graph.Node]bool{}
	need := map[*graph.Node]bool{g: true}
	for _, m := range f.Nodes[ni : gi+1] {
		after[m] = true
	}
	var visit func(v *graph.Value) bool
	visit = func(v *graph.Value) bool {
		m := v.Node
		if m == nil || !after[m] || need[m] {
			return true
		}
		if m == n || graph.HasEffect(m.Op, len(m.In)) {
			return false
		}
		need[m] = true
		for _, w := range m.In {
			if !visit(w) {
				return false
			}
		}
		return true
	}
	for _, v := range g.In[4:] {
		if !visit(v) {
			return
		}
	}
	var moved, rest []*graph.Node
	for _, m := range f.Nodes[ni : gi+1] {
		if need[m] {
			moved = append(moved, m)
		} else if m != n {
			rest = append(rest, m)
		}
	}
	lse := n.Out[1]
	if slices.ContainsFunc(f.Outputs, func(o graph.Output) bool { return o.Value == lse }) {
		return // the log-sum-exp itself is used
	}
	for _, m := range f.Nodes {
		if slices.Contains(m.In, lse) {
			return
		}
	}
	for _, m := range f.Nodes {
		for i, v := range m.In {
			if v == n.Out[0] {
				m.In[i] = g.Out[0]
			}
		}
	}
	for i, o := range f.Outputs {
		if o.Value == n.Out[0] {
			f.Outputs[i].Value = g.Out[0]
		}
	}
	copy(f.Nodes[ni:], append(moved, rest...))
	f.Nodes = append(f.Nodes[:gi], f.Nodes[gi+1:]...)
}

// dropDead removes nodes whose results are not read.
func dropDead(f *graph.Func) {
	live := make([]bool, f.NumValues())
	for _, o := range f.Outputs {
		live[o.Value.ID] = true
	}
	keep := make([]*graph.Node, 0, len(f.Nodes))
	for i := len(f.Nodes) - 1; i >= 0; i-- {
		n := f.Nodes[i]
		used := graph.HasEffect(n.Op, len(n.In))
		for _, v := range n.Out {
			used = used || live[v.ID]
		}
		if !used {
			continue
		}
		for _, v := range n.In {
			live[v.ID] = true
		}
		keep = append(keep, n)
	}
	slices.Reverse(keep)
	f.Nodes = keep
}
