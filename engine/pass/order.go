package pass

import "github.com/snug-ml/snug/engine/graph"

// order chooses the order with the lowest peak: that of writing, or with writes
// to states as soon as they can be, either as it is or with each value computed
// as late as its readers allow.
func order(u *Unit) error {
	u.F = reorder(u.F)
	return nil
}

func reorder(f *graph.Func) *graph.Func {
	early := soon(f)
	best, least := f, peak(f)
	for _, g := range []*graph.Func{early, late(f), late(early)} {
		if p := peak(g); p < least {
			best, least = g, p
		}
	}
	return best
}

// soon is f with every write to a state moved up behind what it waits for: a
// gradient is added to its accumulator and gone before the next one is made.
func soon(f *graph.Func) *graph.Func {
	g := *f
	g.Nodes = make([]*graph.Node, 0, len(f.Nodes))
	// at is the old position that a node now follows (its own if it stays),
	// readers the latest such position among those who read a state version
	// or a view of one.
	at := make(map[*graph.Node]int, len(f.Nodes))
	readers := map[int]int{}
	moved := make([][]*graph.Node, len(f.Nodes)+1) // moved[i+1] follow node i
	for i, n := range f.Nodes {
		at[n] = i
		if graph.HasEffect(n.Op, len(n.In)) {
			at[n] = -1
			for _, v := range n.In {
				if v.Node != nil {
					at[n] = max(at[n], at[v.Node])
				}
			}
			for _, a := range graph.Aliases(n.Op, len(n.In)) {
				if r, ok := readers[n.In[a.In].ID]; ok {
					at[n] = max(at[n], r)
				}
			}
			moved[at[n]+1] = append(moved[at[n]+1], n)
		}
		for _, v := range n.In {
			if root := graph.Storage(v); root.State != nil {
				readers[root.ID] = max(readers[root.ID], at[n])
			}
		}
	}
	g.Nodes = append(g.Nodes, moved[0]...)
	for i, n := range f.Nodes {
		if !graph.HasEffect(n.Op, len(n.In)) {
			g.Nodes = append(g.Nodes, n)
		}
		g.Nodes = append(g.Nodes, moved[i+1]...)
	}
	return &g
}

// late is f with every node that takes more memory than it frees moved down to
// its first reader. Reads of a state stay in front of the writes to it.
func late(f *graph.Func) *graph.Func {
	g := *f
	g.Nodes = make([]*graph.Node, 0, len(f.Nodes))
	readersLeft := f.Uses()
	emitted := make(map[*graph.Node]bool, len(f.Nodes))
	readers := map[int][]*graph.Node{} // pending readers of a state version
	var emit func(n *graph.Node)
	emit = func(n *graph.Node) {
		if emitted[n] {
			return
		}
		emitted[n] = true
		for _, v := range n.In {
			if v.Node != nil {
				emit(v.Node)
			}
		}
		for _, a := range graph.Aliases(n.Op, len(n.In)) {
			id := n.In[a.In].ID
			for _, r := range readers[id] {
				if r != n {
					emit(r)
				}
			}
		}
		g.Nodes = append(g.Nodes, n)
		for _, v := range n.In {
			readersLeft[v.ID]--
		}
	}
	for _, n := range f.Nodes {
		for _, v := range n.In {
			if root := graph.Storage(v); root.State != nil {
				readers[root.ID] = append(readers[root.ID], n)
			}
		}
	}
	for _, n := range f.Nodes {
		if emitted[n] || !eager(n, readersLeft) {
			continue
		}
		emit(n)
	}
	for _, n := range f.Nodes {
		emit(n)
	}
	return &g
}

// eager reports whether running n now frees at least what it takes.
func eager(n *graph.Node, readersLeft []int) bool {
	if graph.HasEffect(n.Op, len(n.In)) {
		return true
	}
	var takes, frees int64
	for _, v := range n.Out {
		takes += v.Type.Bytes()
	}
	for _, v := range n.In {
		if v.Node != nil && v.State == nil && readersLeft[v.ID] == 1 {
			frees += v.Type.Bytes()
		}
	}
	return frees >= takes
}
