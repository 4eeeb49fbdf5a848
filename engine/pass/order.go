package pass

import "github.com/snug-ml/snug/engine/graph"

// order chooses, between the order of writing and the one that computes each
// value as late as its readers allow, the one with the lower peak.
func order(u *Unit) error {
	u.F = reorder(u.F)
	return nil
}

func reorder(f *graph.Func) *graph.Func {
	lazy := late(f)
	if peak(lazy) < peak(f) {
		return lazy
	}
	return f
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
			if v.State != nil {
				readers[v.ID] = append(readers[v.ID], n)
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
