package pass

import (
	"slices"
	"sync"

	"github.com/snug-ml/snug/engine/graph"
)

// buffer is one block of temporary memory: a value with its views and parts, and with whatever
// overwrites it in place.
type buffer struct {
	values     []*graph.Value
	bytes      int64
	start, end int32 // node positions, half open
	part       bool  // of another buffer, which has its values
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
	inside []int64 // byte offset in the buffer
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
	t.inside = cleared(t.inside, f.NumValues())
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
	for i := len(f.Nodes) - 1; i >= 0; i-- {
		n := f.Nodes[i]
		if graph.IsView(n.Op) {
			r := graph.Storage(n.Out[0])
			last[r.ID] = max(last[r.ID], last[n.Out[0].ID])
			pinned[r.ID] = pinned[r.ID] || pinned[n.Out[0].ID]
		}
	}
	t.slab, t.all = cleared(t.slab, results)[:0], cleared(t.all, results)[:0]
	slab, all := t.slab, t.all
	for i, n := range f.Nodes {
		if graph.IsView(n.Op) {
			if r := graph.Storage(n.Out[0]); of[r.ID] != nil {
				t.put(n.Out[0], of[r.ID], t.inside[r.ID])
			}
			continue
		}
		if op, ok := n.Op.(graph.SliceView); ok {
			r := graph.Storage(n.In[0])
			at, _ := op.Run(n.In[0].Type)
			of[r.ID].end = max(of[r.ID].end, last[n.Out[0].ID]+1)
			t.put(n.Out[0], of[r.ID], t.inside[r.ID]+at)
			continue
		}
		taken := t.takeOver(n, int32(i))
		aliases := graph.Aliases(n.Op, len(n.In))
		for j, v := range n.Out {
			if pinned[v.ID] || v.State != nil {
				continue
			}
			if b := written(n, aliases, j, of); b != nil {
				t.put(v, b, 0)
				b.end = max(b.end, last[v.ID]+1)
				continue
			}
			if j == 0 && taken != nil {
				t.put(v, taken, 0)
				taken.end = max(taken.end, last[v.ID]+1)
				continue
			}
			slab = append(slab, buffer{values: n.Out[j : j+1 : j+1], bytes: v.Type.Bytes(), start: int32(i), end: last[v.ID] + 1})
			b := &slab[len(slab)-1]
			of[v.ID] = b
			all = append(all, b)
			if _, ok := n.Op.(graph.ConcatView); ok {
				t.join(b, n)
			}
		}
	}
	return slices.DeleteFunc(all, func(b *buffer) bool { return b.part })
}

// put records that v lies in b, at a byte offset.
func (t *tables) put(v *graph.Value, b *buffer, at int64) {
	t.of[v.ID], t.inside[v.ID] = b, at
	b.values = append(b.values, v)
}

// join makes the buffers of n's operands parts of b, the buffer of its result.
func (t *tables) join(b *buffer, n *graph.Node) {
	at := int64(0)
	for _, v := range n.In {
		p := t.of[v.ID]
		for _, w := range p.values {
			t.put(w, b, t.inside[w.ID]+at)
		}
		b.start, b.end, p.part = min(b.start, p.start), max(b.end, p.end), true
		at += v.Type.Bytes()
	}
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
func (t *tables) takeOver(n *graph.Node, i int32) *buffer {
	ip, ok := n.Op.(graph.Inplacer)
	if !ok || t.pinned[n.Out[0].ID] || n.Out[0].State != nil {
		return nil
	}
	for _, k := range ip.InplaceOperands(n) {
		v := n.In[k]
		b := t.of[v.ID]
		if b == nil || b.end != i+1 || b.bytes != n.Out[0].Type.Bytes() || v.Type.Bytes() != b.bytes {
			continue
		}
		// Another operand of the node must not lie in the same buffer.
		shared := false
		for j, w := range n.In {
			shared = shared || (j != k && t.of[w.ID] == b)
		}
		if !shared {
			return b
		}
	}
	return nil
}

var liveTables = sync.Pool{New: func() any { return new(tables) }}

// live returns the bytes of temporary memory that are live at each position of f, and 0 after the last.
func live(f *graph.Func) []int64 {
	t := liveTables.Get().(*tables)
	defer liveTables.Put(t)
	bytes := make([]int64, len(f.Nodes)+1)
	for _, b := range t.buffers(f) {
		bytes[b.start] += b.bytes
		bytes[b.end] -= b.bytes
	}
	for i := 1; i < len(bytes); i++ {
		bytes[i] += bytes[i-1]
	}
	return bytes
}

// peak returns the most temporary memory live at any position of f.
func peak(f *graph.Func) int64 { return slices.Max(live(f)) }
