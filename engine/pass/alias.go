package pass

import (
	"cmp"
	"maps"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pack"
)

// alias makes slices parts of their operand's buffer, and what is joined parts of the result's, where these are in
// one piece and no more memory is needed: copies that need not be made.
func alias(u *Unit) error {
	if !slices.ContainsFunc(u.F.Nodes, movesOnly) {
		return nil
	}
	views := aliases(u.F, cmp.Or(u.Align, pack.DefaultAlign))
	if len(views) == 0 {
		return nil
	}
	limit := peak(u.F)
	for len(views) > 0 {
		f, err := viewing(u.F, views)
		if err != nil {
			return err
		}
		over := overBefore(live(f), limit)
		if over[len(over)-1] == 0 {
			u.F = f
			return nil
		}
		before := len(views)
		maps.DeleteFunc(views, func(_ *graph.Node, x extension) bool { return over[x.from] < over[x.to] })
		if len(views) == before {
			return nil
		}
	}
	return nil
}

// overBefore returns, for each position, at how many before it more bytes are live than limit. Nothing is after the last.
func overBefore(live []int64, limit int64) []int {
	over := make([]int, len(live))
	for i, bytes := range live[:len(live)-1] {
		over[i+1] = over[i]
		if bytes > limit {
			over[i+1]++
		}
	}
	return over
}

// movesOnly reports whether n only moves what it takes apart or joins.
func movesOnly(n *graph.Node) bool {
	switch n.Op.(type) {
	case graph.Slice, graph.Concat:
		return true
	}
	return false
}

// viewing returns f with nodes as views.
func viewing(f *graph.Func, views map[*graph.Node]extension) (*graph.Func, error) {
	return f.Rewrite(func(b *graph.Builder, n *graph.Node, in []*graph.Value) []*graph.Value {
		if _, ok := views[n]; !ok {
			return nil
		}
		if op, ok := n.Op.(graph.Slice); ok {
			return b.Emit(graph.SliceView{Slice: op}, in...)
		}
		return b.Emit(graph.ConcatView{Concat: n.Op.(graph.Concat)}, in...)
	})
}

// extension is where a buffer is live because something is a part of it: positions, half open.
type extension struct{ from, to int32 }

// aliases returns the nodes of f that may be views.
func aliases(f *graph.Func, align int64) map[*graph.Node]extension {
	var t tables
	t.buffers(f)
	views := map[*graph.Node]extension{}
	for _, n := range f.Nodes {
		op, ok := n.Op.(graph.Slice)
		if !ok || !t.temporary(n.In[0]) || !t.temporary(n.Out[0]) {
			continue
		}
		if at, run := op.Run(n.In[0].Type); run && at%align == 0 {
			end := t.of[n.In[0].ID].end
			views[n] = extension{end, max(end, t.last[n.Out[0].ID]+1)}
		}
	}
	joined := map[*buffer]bool{}
	for i, n := range f.Nodes {
		op, ok := n.Op.(graph.Concat)
		if !ok || !t.temporary(n.Out[0]) || n.Out[0].Shape()[:op.Axis].Elems() != 1 {
			continue
		}
		parts := map[*buffer]bool{}
		x := extension{int32(i), int32(i)}
		at := int64(0)
		for _, v := range n.In {
			b := t.of[v.ID]
			if !t.temporary(v) || at%align != 0 || b.bytes != v.Type.Bytes() || joined[b] || parts[b] {
				break
			}
			if _, ok := views[graph.Storage(v).Node]; ok {
				break // a part of another buffer
			}
			parts[b] = true
			x.from = min(x.from, b.start)
			at += v.Type.Bytes()
		}
		if len(parts) == len(n.In) {
			views[n] = x
			maps.Copy(joined, parts)
		}
	}
	return views
}

// temporary reports whether v is in a buffer of its own or of a temporary value.
func (t *tables) temporary(v *graph.Value) bool {
	return t.of[v.ID] != nil && graph.Storage(v).State == nil
}
