package pass

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pack"
)

// A value is worth copying to the host's memory if it has at least this fraction of
// [Unit.Staging] (smaller copies are dominated by overhead), or of all temporaries if these are
// few.
const (
	awayOfStaging = 16
	awayOfAll     = 256
)

// away is a value that can be in the host's memory between two of its uses.
type away struct {
	buffer   *buffer
	value    *graph.Value
	made     int     // position of the node that computes it
	from, to int     // the last node that uses it before, and the first one after
	idle     float64 // the time between them
	out, in  float64 // what the copies take

	left, due int                           // the nodes before which it has left and begins to come back
	state     *graph.Value                  // its copy in the host's memory
	back      map[*graph.Value]*graph.Value // it and its views once it is back
}

// offloadActivations keeps values that the backward half reads in the host's memory until then:
// those that are idle for longest, as few as bring the temporaries down to u.Budget, or to the
// least possible. A copy to the host begins when the value is computed, a copy back early enough
// to overlap with computation, as far as the budget allows.
func offloadActivations(u *Unit) error {
	if !u.OffloadActivations || u.Loss == "" {
		return nil
	}
	p := newAwayPlan(u)
	budget := max(u.Budget, p.least())
	if slices.Max(p.live) <= budget {
		return nil
	}
	for _, waiting := range []bool{false, true} {
		best, most := p.schedule(len(p.list), budget, waiting)
		if most > budget {
			continue
		}
		lo, hi := 0, len(p.list) // lo are too few
		for hi-lo > 1 {
			mid := (lo + hi) / 2
			if list, most := p.schedule(mid, budget, waiting); most <= budget {
				best, hi = list, mid
			} else {
				lo = mid
			}
		}
		return park(u, best)
	}
	return nil
}

// awayPlan says what can be away, and when.
type awayPlan struct {
	list   []away    // longest idle first
	live   []int64   // bytes at each node, with nothing away
	starts []float64 // when each node runs, and when all have run
}

func newAwayPlan(u *Unit) *awayPlan {
	nodes := u.F.Nodes
	p := &awayPlan{live: make([]int64, len(nodes)+1), starts: make([]float64, len(nodes)+1)}
	granule := cmp.Or(u.Align, pack.DefaultAlign)
	price := u.Price
	if price == nil {
		price = balanced
	}
	position := positionsOf(u.F)
	for i, n := range nodes {
		p.starts[i+1] = p.starts[i]
		if in, out := graph.Transferred(n); in+out == 0 && !graph.IsView(n.Op) {
			p.starts[i+1] += price(n)
		}
	}
	bufs := buffers(u.F)
	of := make([]int, u.F.NumValues()) // index of a value's buffer, from 1; 0: none
	for i, b := range bufs {
		b.bytes = (b.bytes + granule - 1) / granule * granule
		p.live[b.start] += b.bytes
		p.live[b.end] -= b.bytes
		for _, v := range b.values {
			of[v.ID] = i + 1
		}
	}
	for i := range nodes {
		p.live[i+1] += p.live[i]
	}
	type use struct {
		last int // position of the last node that used it, from 1; 0: none yet
		idle away
	}
	uses := make([]use, len(bufs))
	for i, n := range nodes {
		if graph.IsView(n.Op) {
			continue
		}
		for _, vs := range [...][]*graph.Value{n.In, n.Out} {
			for _, v := range vs {
				k := of[v.ID] - 1
				if k < 0 {
					continue
				}
				b := &uses[k]
				if at := b.last - 1; at >= 0 && p.starts[i]-p.starts[at+1] > b.idle.idle {
					b.idle = away{buffer: bufs[k], from: at, to: i, idle: p.starts[i] - p.starts[at+1]}
				}
				b.last = i + 1
			}
		}
	}
	least := min(cmp.Or(u.Staging, StagingWindow)/awayOfStaging, slices.Max(p.live)/awayOfAll)
	for i, b := range bufs {
		a := uses[i].idle
		if a.buffer == nil || b.bytes < least || slices.ContainsFunc(b.values, graph.Staged) {
			continue
		}
		a.value = b.holds(a.from, position)
		if a.value.DType().Quantized() || a.value.Node.Clone {
			continue // a value that is soon recomputed has its last use here
		}
		a.made = position.of(a.value.Node)
		out, in := copies(a.value)
		a.out, a.in = price(out), price(in)
		p.list = append(p.list, a)
	}
	slices.SortStableFunc(p.list, func(a, b away) int { return cmp.Compare(b.idle, a.idle) })
	return p
}

// copies returns nodes that copy v to the host's memory and back, to price them.
func copies(v *graph.Value) (out, in *graph.Node) {
	b := graph.NewBuilder("copies")
	x := b.Input("x", v.Type)
	s := b.State(&graph.State{Name: "away", Type: v.Type, Role: graph.Activation, Offloaded: true})
	s = b.Emit(graph.WriteBack{}, s, x)[0]
	b.Emit(graph.Fetch{Elems: v.Shape().Elems()}, s)
	return b.F.Nodes[0], b.F.Nodes[1]
}

// least returns the peak of live bytes if everything that can be away is away as long as
// possible.
func (p *awayPlan) least() int64 {
	change := make([]int64, len(p.live)+1)
	for _, a := range p.list {
		change[a.from+1] -= a.buffer.bytes
		change[a.to] += a.buffer.bytes
	}
	return slices.Max(p.with(change))
}

// with returns the bytes live at each node, given the changes that begin at a node.
func (p *awayPlan) with(change []int64) []int64 {
	live, sum := slices.Clone(p.live), int64(0)
	for k := range live {
		sum += change[k]
		live[k] += sum
	}
	return live
}

// schedule places the copies of the first n of the list, and returns the peak of live bytes.
// Normally a copy gets the time that the bus takes; where the peak would exceed the budget, a
// value leaves earlier, and comes back later, although the device waits for it. A value for which
// the bus has no time at all stays, unless waiting is set.
func (p *awayPlan) schedule(n int, budget int64, waiting bool) ([]*away, int64) {
	list := make([]*away, n)
	for i := range list {
		a := p.list[i]
		list[i] = &a
	}
	for again := true; again; { // without those that stay, which had their turn on the bus
		p.unhurried(list)
		stays := func(a *away) bool { return a.due <= a.left }
		again = !waiting && slices.ContainsFunc(list, stays)
		if list = slices.DeleteFunc(list, func(a *away) bool { return again && stays(a) }); waiting {
			for _, a := range list {
				if stays(a) {
					a.left, a.due = a.from+1, a.to
				}
			}
		}
	}
	p.comeLater(list, budget)
	most := p.leaveEarlier(list, budget)
	slices.SortStableFunc(list, func(a, b *away) int { return cmp.Compare(a.to, b.to) })
	return list, most
}

// comeLater postpones copies back where more than the budget would be live if all values had left
// as soon as they can: at each node, first those that are read last.
func (p *awayPlan) comeLater(list []*away, budget int64) {
	change := make([]int64, len(p.live)+1)
	for _, a := range list {
		change[a.from+1] -= a.buffer.bytes
		change[a.due] += a.buffer.bytes
	}
	live := p.with(change)
	slices.SortStableFunc(list, func(a, b *away) int { return cmp.Compare(b.to, a.to) })
	ends, less := make([]int64, len(live)), int64(0)
	first, next := 0, 0 // index in the list: which may be back at a node
	for k := len(live) - 1; k >= 0; k-- {
		less -= ends[k]
		for ; next < len(list) && k < list[next].to; next++ {
		}
		for ; first < next && live[k]-less > budget; first++ {
			if a := list[first]; a.due <= k {
				less += a.buffer.bytes
				ends[a.due-1] += a.buffer.bytes
				a.due = k + 1
			}
		}
	}
}

// leaveEarlier makes the computation wait for copies to the host where more than the budget would
// be live: at each node, first those that are idle for longest. It returns the resulting peak of
// live bytes.
func (p *awayPlan) leaveEarlier(list []*away, budget int64) int64 {
	change := make([]int64, len(p.live)+1)
	for _, a := range list {
		change[a.left] -= a.buffer.bytes
		change[a.due] += a.buffer.bytes
	}
	live := p.with(change)
	slices.SortStableFunc(list, func(a, b *away) int { return cmp.Compare(a.from, b.from) })
	ends, less := make([]int64, len(live)+1), int64(0)
	first, next := 0, 0 // index in the list: which may be on their way at a node
	for k := range live {
		less -= ends[k]
		for ; next < len(list) && list[next].from < k; next++ {
		}
		for ; first < next && live[k]-less > budget; first++ {
			if a := list[first]; k < a.left {
				less += a.buffer.bytes
				ends[a.left] += a.buffer.bytes
				a.left = k
			}
		}
		live[k] -= less
	}
	return slices.Max(live)
}

// unhurried places copies where nothing waits for them: to the host in the order in which values
// are computed, back in the order in which they are read again, as late as possible.
func (p *awayPlan) unhurried(list []*away) {
	slices.SortStableFunc(list, func(a, b *away) int { return cmp.Compare(a.made, b.made) })
	free := 0.0
	for _, a := range list {
		free = max(free, p.starts[a.made+1]) + a.out
		at, _ := slices.BinarySearch(p.starts, free)
		a.left = max(a.from+1, at)
	}
	slices.SortStableFunc(list, func(a, b *away) int { return cmp.Compare(b.to, a.to) })
	free = math.Inf(1)
	for _, a := range list {
		free = min(free, p.starts[a.to]) - a.in
		at, found := slices.BinarySearch(p.starts, free)
		if !found {
			at--
		}
		a.due = min(at, a.to)
	}
}

// park copies values to the host's memory and back.
func park(u *Unit, list []*away) (err error) {
	if len(list) == 0 {
		return nil
	}
	leaving, coming, of := map[int][]*away{}, map[int][]*away{}, map[*graph.Value]*away{}
	for _, a := range list {
		leaving[a.left] = append(leaving[a.left], a)
		coming[a.due] = append(coming[a.due], a)
		of[a.value] = a
	}
	position := positionsOf(u.F)
	count := 0
	old := u.F
	u.F, err = old.Rewrite(func(b *graph.Builder, n *graph.Node, in []*graph.Value) []*graph.Value {
		i := position.of(n)
		for _, a := range leaving[i] {
			b.At(a.value.Node, func() {
				s := b.State(&graph.State{Name: fmt.Sprintf("%s/activation.%d", old.Name, count), Type: a.value.Type, Role: graph.Activation, Offloaded: true})
				a.state = b.Emit(graph.WriteBack{}, s, b.Now(a.value))[0]
			})
			count++
		}
		for _, a := range coming[i] {
			b.At(old.Nodes[a.to], func() {
				v := b.Emit(graph.Fetch{Elems: a.value.Shape().Elems()}, a.state)[0]
				a.back = map[*graph.Value]*graph.Value{a.value: b.Reshape(v, a.value.Shape()...)}
			})
		}
		for k, v := range n.In {
			if a := of[graph.Storage(v)]; a != nil && a.back != nil && (v.Node == a.value.Node || position.of(v.Node) < a.due) {
				in[k] = a.view(b, v)
			}
		}
		if a := of[graph.Storage(n.Out[0])]; a != nil && graph.IsView(n.Op) && a.state != nil && a.back == nil {
			return in[:1] // its readers get a view of what comes back
		}
		return nil
	})
	return err
}

// view returns v, a view of a value that is back, as a view of the copy.
func (a *away) view(b *graph.Builder, v *graph.Value) *graph.Value {
	if a.back[v] == nil {
		in := slices.Clone(v.Node.In)
		in[0] = a.view(b, in[0])
		a.back[v] = b.Emit(v.Node.Op, in...)[0]
	}
	return a.back[v]
}
