package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// order chooses the schedule with the lowest peak among the order of writing,
// the one that computes each value as late as its readers allow, and both with
// everything that frees memory (updates of states, sums) moved up to where it first
// can run: so, without clipping, the optimizer follows each gradient at once.
func order(u *Unit) error {
	u.F, _ = reordered(u.F)
	return nil
}

// reordered is f in the best of the orders, and its peak. Of equals the first
// is taken: what runs early finds its operands in cache.
func reordered(f *graph.Func) (best *graph.Func, least int64) {
	lazy := late(f)
	for _, g := range []*graph.Func{early(f), early(lazy), f, lazy} {
		if p := peak(g); best == nil || p < least {
			best, least = g, p
		}
	}
	return best, least
}

// scheduler puts the nodes of a function into another order that keeps every
// dependency: operands come first, and a version of a state is overwritten
// after all that read it.
type scheduler struct {
	nodes   []*graph.Node
	done    map[*graph.Node]bool
	readers map[int][]*graph.Node // of each version of a state
}

func newScheduler(f *graph.Func) *scheduler {
	s := &scheduler{
		nodes:   make([]*graph.Node, 0, len(f.Nodes)),
		done:    make(map[*graph.Node]bool, len(f.Nodes)),
		readers: map[int][]*graph.Node{},
	}
	for _, n := range f.Nodes {
		for _, v := range n.In {
			// A view of a state reads it, and so does what reads the view.
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

// before are the nodes that must run before n.
func (s *scheduler) before(n *graph.Node) []*graph.Node {
	var need []*graph.Node
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
	if s.done[n] {
		return
	}
	s.done[n] = true
	for _, m := range s.before(n) {
		s.run(m)
	}
	s.nodes = append(s.nodes, n)
}

func (s *scheduler) schedule(f *graph.Func) *graph.Func {
	g := *f
	g.Nodes = s.nodes
	return &g
}

// late is f with every node that takes more memory than it frees moved down to
// its first reader.
func late(f *graph.Func) *graph.Func {
	s := newScheduler(f)
	left := f.Uses()
	for _, n := range f.Nodes {
		if s.done[n] || !frees(n, left) {
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

// early is f with every node that writes states or takes next to no memory moved up
// to where everything it depends on has run.
func early(f *graph.Func) *graph.Func {
	s := newScheduler(f)
	waits := map[*graph.Node]int{} // for how many nodes a small one waits
	wakes := map[*graph.Node][]*graph.Node{}
	for _, n := range f.Nodes {
		if !small(n) {
			continue
		}
		need := s.before(n)
		slices.SortFunc(need, byID)
		need = slices.Compact(need)
		waits[n] = len(need)
		for _, m := range need {
			wakes[m] = append(wakes[m], n)
		}
	}
	var run func(n *graph.Node)
	run = func(n *graph.Node) {
		s.done[n] = true
		s.nodes = append(s.nodes, n)
		for _, m := range wakes[n] {
			if waits[m]--; waits[m] == 0 {
				run(m)
			}
		}
	}
	for _, n := range f.Nodes {
		if !s.done[n] && waits[n] == 0 {
			run(n)
		}
	}
	return s.schedule(f)
}

func byID(a, b *graph.Node) int { return a.Out[0].ID - b.Out[0].ID }

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
		reads = takes // and not the rest
	}
	return takes <= max(reads/16, 256)
}
