package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// order chooses the schedule with the lowest peak among the source order, the one that
// computes each value as late as its readers allow, and both with everything that frees
// memory (updates of states, sums) moved up to where it first can run: so, without
// clipping, the optimizer follows each gradient at once.
func order(u *Unit) error {
	u.F, _ = u.reordered(u.F)
	return nil
}

// reordered returns f in the best of the orders, and its peak. The first of equals wins:
// what runs early finds its operands in cache.
func reordered(f *graph.Func) (best *graph.Func, least int64) {
	var list [4]*graph.Func
	var peaks [4]int64
	try := func(i int, g *graph.Func) { list[i], peaks[i] = g, peak(g) }
	both(func() {
		try(0, early(f))
		try(2, f)
	}, func() {
		lazy := late(f)
		try(1, early(lazy))
		try(3, lazy)
	})
	for i, g := range list {
		if best == nil || peaks[i] < least {
			best, least = g, peaks[i]
		}
	}
	return best, least
}

// schedule is the result of reordered for a function.
type schedule struct {
	of, best *graph.Func
	peak     int64
}

// reordered caches the result for f until another pass changes the function.
func (u *Unit) reordered(f *graph.Func) (*graph.Func, int64) {
	if u.schedule.of != f {
		best, peak := reordered(f)
		u.schedule = schedule{f, best, peak}
	}
	return u.schedule.best, u.schedule.peak
}

// scheduler puts the nodes of a function into another order that keeps every dependency:
// operands come first, and a version of a state is overwritten after everything that
// reads it.
type scheduler struct {
	nodes   []*graph.Node
	done    []bool                // by the ID of a node's first result
	readers map[int][]*graph.Node // of each version of a state
}

func newScheduler(f *graph.Func) *scheduler {
	s := &scheduler{
		nodes:   make([]*graph.Node, 0, len(f.Nodes)),
		done:    make([]bool, f.NumValues()),
		readers: make(map[int][]*graph.Node, len(f.States)),
	}
	for _, n := range f.Nodes {
		for _, v := range n.In {
			// A view of a state reads it, and so does any reader of the view.
			for {
				if v.State != nil {
					s.readers[v.ID] = append(s.readers[v.ID], n)
				}
				if v.Node == nil || !graph.IsView(v.Node.Op) {
					break
				}
				v = v.Node.In[0]
			}
		}
	}
	return s
}

// appendBefore appends the nodes that must run before n.
func (s *scheduler) appendBefore(need []*graph.Node, n *graph.Node) []*graph.Node {
	for _, v := range n.In {
		if v.Node != nil {
			need = append(need, v.Node)
		}
	}
	for _, a := range graph.Aliases(n.Op, len(n.In)) {
		for _, r := range s.readers[n.In[a.In].ID] {
			if r != n {
				need = append(need, r)
			}
		}
	}
	return need
}

// run appends n after everything it depends on.
func (s *scheduler) run(n *graph.Node) {
	if s.done[n.Out[0].ID] {
		return
	}
	s.done[n.Out[0].ID] = true
	for _, v := range n.In {
		if v.Node != nil {
			s.run(v.Node)
		}
	}
	for _, a := range graph.Aliases(n.Op, len(n.In)) {
		for _, r := range s.readers[n.In[a.In].ID] {
			if r != n {
				s.run(r)
			}
		}
	}
	s.nodes = append(s.nodes, n)
}

func (s *scheduler) schedule(f *graph.Func) *graph.Func {
	g := f.Shallow()
	g.Nodes = s.nodes
	return g
}

// late returns f with every node that takes more memory than it frees moved down to its
// first reader.
func late(f *graph.Func) *graph.Func {
	s := newScheduler(f)
	left := f.Uses()
	for _, n := range f.Nodes {
		if s.done[n.Out[0].ID] || !frees(n, left) {
			continue
		}
		from := len(s.nodes)
		s.run(n)
		for _, m := range s.nodes[from:] {
			for _, v := range m.In {
				left[v.ID]--
			}
		}
	}
	for _, n := range f.Nodes {
		s.run(n)
	}
	return s.schedule(f)
}

// frees reports whether running n frees at least what it takes, given how many
// reads of each value are left.
func frees(n *graph.Node, left []int) bool {
	if graph.HasEffect(n.Op, len(n.In)) {
		return true
	}
	var takes, gives int64
	for _, v := range n.Out {
		takes += v.Type.Bytes()
	}
	for _, v := range n.In {
		if v.Node != nil && v.State == nil && left[v.ID] == 1 {
			gives += v.Type.Bytes()
		}
	}
	return gives >= takes
}

// early returns f with every node that writes states or takes next to no memory moved up
// to where everything it depends on has run.
func early(f *graph.Func) *graph.Func {
	s := newScheduler(f)
	waits := make([]int32, f.NumValues()) // how many nodes a small one waits for, by its first result
	// The nodes that wait for a node form a list; its first entry is indexed by the node's
	// first result, 0: none.
	type waiter struct {
		n    *graph.Node
		next int32
	}
	first, list := make([]int32, f.NumValues()), make([]waiter, 1, 1+len(f.Nodes))
	counted := make([]int32, f.NumValues()) // the last node, from 1, found waiting for one
	var need []*graph.Node
	for i, n := range slices.Backward(f.Nodes) {
		if !small(n) {
			continue
		}
		need = s.appendBefore(need[:0], n)
		for _, m := range need {
			id := m.Out[0].ID
			if counted[id] == int32(i+1) {
				continue
			}
			counted[id] = int32(i + 1)
			waits[n.Out[0].ID]++
			list = append(list, waiter{n, first[id]})
			first[id] = int32(len(list) - 1)
		}
	}
	var run func(n *graph.Node)
	run = func(n *graph.Node) {
		id := n.Out[0].ID
		s.done[id] = true
		s.nodes = append(s.nodes, n)
		for k := first[id]; k != 0; k = list[k].next {
			m := list[k].n
			if waits[m.Out[0].ID]--; waits[m.Out[0].ID] == 0 {
				run(m)
			}
		}
	}
	for _, n := range f.Nodes {
		if !s.done[n.Out[0].ID] && waits[n.Out[0].ID] == 0 {
			run(n)
		}
	}
	return s.schedule(f)
}

// small reports whether the results of n take next to no memory: it writes states,
// is a view, or writes little compared with what it reads.
func small(n *graph.Node) bool {
	if graph.IsView(n.Op) {
		return true
	}
	var takes, reads int64
	for _, v := range n.Out {
		if v.State == nil {
			takes += v.Type.Bytes()
		}
	}
	for _, v := range n.In {
		reads = max(reads, v.Type.Bytes())
	}
	if _, ok := n.Op.(graph.Slice); ok {
		reads = takes // reads only that, not the rest
	}
	return takes <= max(reads/16, 256)
}
