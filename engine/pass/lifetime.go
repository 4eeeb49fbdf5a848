package pass

import (
	"sync"

	"github.com/snug-ml/snug/engine/graph"
)

// buffer is one block of temporary memory: a value with its views and with whatever
// overwrites it in place.
type buffer struct {
	values     []*graph.Value
	bytes      int64
	start, end int32 // node positions, half open
}

// buffers finds the temporary buffers of f in its current order. Inputs, states, state
// versions and outputs are not temporary. Results take over the storage of operands that
// die with the node.
func buffers(f *graph.Func) []*buffer { return new(tables).buffers(f) }

// tables are the scratch tables for finding buffers, kept for reuse.
type tables struct {
	of     []*buffer // by ID of a value
	pinned []bool
	last   []int32 // position at which a value is read or made
	slab   []buffer
	all    []*buffer
}

// cleared returns a slice of n zeros, reusing s if it is large enough.
func cleared[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	s = s[:n]
	clear(s)
	return s
}

// buffers returns buffers that are valid until the tables are used again.
func (t *tables) buffers(f *graph.Func) []*buffer {
	t.of, t.pinned, t.last = cleared(t.of, f.NumValues()), cleared(t.pinned, f.NumValues()), cleared(t.last, f.NumValues())
	of, pinned, last := t.of, t.pinned, t.last
	results := 0
	for i, n := range f.Nodes {
		results += len(n.Out)
		for _, v := range n.In {
			last[v.ID] = int32(i)
		}
		for _, v := range n.Out {
			last[v.ID] = int32(i)
		}
	}
	for _, v := range f.Inputs {
		pinned[v.ID] = true
	}
	for _, v := range f.States {
		pinned[v.ID] = true
	}
	for _, o := range f.Outputs {
		pinned[o.Value.ID] = true
	}
	// A view keeps its storage alive and is pinned with it, and an output
	// that is a view pins its storage.
	root := func(v *graph.Value) *graph.Value {
		for v.Node != nil && graph.IsView(v.Node.Op) {
			v = v.Node.In[0]
		}
		return v
	}
	for i := len(f.Nodes) - 1; i >= 0; i-- {
		n := f.Nodes[i]
		if graph.IsView(n.Op) {
			r := root(n.Out[0])
			last[r.ID] = max(last[r.ID], last[n.Out[0].ID])
			pinned[r.ID] = pinned[r.ID] || pinned[n.Out[0].ID]
		}
	}
	t.slab, t.all = cleared(t.slab, results)[:0], cleared(t.all, results)[:0]
	slab, all := t.slab, t.all
	for i, n := range f.Nodes {
		if graph.IsView(n.Op) {
			if b := of[root(n.Out[0]).ID]; b != nil {
				of[n.Out[0].ID] = b
				b.values = append(b.values, n.Out[0])
			}
			continue
		}
		taken := takeOver(n, int32(i), of, pinned, root)
		aliases := graph.Aliases(n.Op, len(n.In))
		for j, v := range n.Out {
			if pinned[v.ID] || v.State != nil {
				continue
			}
			if b := written(n, aliases, j, of); b != nil {
				of[v.ID] = b
				b.values = append(b.values, v)
				b.end = max(b.end, last[v.ID]+1)
				continue
			}
			if j == 0 && taken != nil {
				of[v.ID] = taken
				taken.values = append(taken.values, v)
				taken.end = max(taken.end, last[v.ID]+1)
				continue
			}
			slab = append(slab, buffer{values: n.Out[j : j+1 : j+1], bytes: v.Type.Bytes(), start: int32(i), end: last[v.ID] + 1})
			b := &slab[len(slab)-1]
			of[v.ID] = b
			all = append(all, b)
		}
	}
	return all
}

// written returns the buffer that node n writes in place for its result j, one of a fetched
// part of a state; nil: none.
func written(n *graph.Node, aliases []graph.Alias, j int, of []*buffer) *buffer {
	for _, a := range aliases {
		if a.Out == j {
			return of[n.In[a.In].ID]
		}
	}
	return nil
}

// takeOver returns the buffer of an operand that node n, at position i, may overwrite
// with its first result, or nil.
func takeOver(n *graph.Node, i int32, of []*buffer, pinned []bool, root func(*graph.Value) *graph.Value) *buffer {
	ip, ok := n.Op.(graph.Inplacer)
	if !ok || pinned[n.Out[0].ID] || n.Out[0].State != nil {
		return nil
	}
	for _, k := range ip.InplaceOperands(n) {
		v := n.In[k]
		b := of[v.ID]
		if b == nil || b.end != i+1 || b.bytes != n.Out[0].Type.Bytes() {
			continue
		}
		// Another operand of the node must not be a view of the same storage.
		shared := false
		for j, w := range n.In {
			shared = shared || (j != k && root(w) == root(v))
		}
		if !shared {
			return b
		}
	}
	return nil
}

var peakTables = sync.Pool{New: func() any { return new(tables) }}

// peak returns the most temporary memory live at any position of f.
func peak(f *graph.Func) int64 {
	t := peakTables.Get().(*tables)
	defer peakTables.Put(t)
	change := make([]int64, len(f.Nodes)+1)
	for _, b := range t.buffers(f) {
		change[b.start] += b.bytes
		change[b.end] -= b.bytes
	}
	var live, most int64
	for _, c := range change {
		live += c
		most = max(most, live)
	}
	return most
}
