package cuda

import (
	"errors"
	"slices"
	"sync"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/graph"
)

// A function that will be followed is captured in segments, which end where a run has finished with a bucket
// of gradients and where it begins to use one. An event after a segment tells the host that the card has
// finished with a bucket; its exchange then begins on another stream while later segments compute. The host
// queues a segment only after the gradients that it uses have been taken in the round before.

// segment is some launches of a function that were captured together.
type segment struct {
	graph driver.Graph
	// asks says that the guard is asked before the segment.
	asks bool
	// In a function that is followed, begins are the gradients that no earlier segment uses, ends those that
	// no later one uses.
	begins, ends []string
	ended        driver.Event // after the segment; nil: nothing ends
}

// close frees the graph and the event.
func (s *segment) close(add func(error)) {
	if s.graph != nil {
		add(s.graph.Close())
	}
	if s.ended != nil {
		add(s.ended.Close())
	}
}

// use is the range of a function's launches that use a bucket: first is included, last is not.
type use struct {
	names       []string
	first, last int
}

// usesOf lists the uses of every bucket that a function uses.
func usesOf(f *graph.Func, launches []bound, buckets [][]*graph.State) (list []use) {
	place := map[*graph.Node]int{}
	for i, n := range f.Nodes {
		place[n] = i
	}
	// A launch may stand for several nodes, and a node may have several launches, or none.
	low, high := make([]int, len(launches)), make([]int, len(launches))
	for i, l := range launches {
		low[i], high[i] = place[l.node], place[l.node]
		for _, n := range l.also {
			low[i], high[i] = min(low[i], place[n]), max(high[i], place[n])
		}
	}
	begins, ends := map[string]int{}, map[string]int{}
	for n, u := range engine.GradientUses(f) {
		for _, name := range u.Begins {
			begins[name] = max(0, slices.IndexFunc(high, func(i int) bool { return i >= place[n] }))
		}
		for _, name := range u.Ends {
			ends[name] = 0
			for i, at := range low {
				if at <= place[n] {
					ends[name] = i + 1
				}
			}
		}
	}
	for _, states := range buckets {
		u := use{first: len(launches)}
		for _, s := range states {
			if first, ok := begins[s.Name]; ok {
				u.names = append(u.names, s.Name)
				u.first, u.last = min(u.first, first), max(u.last, ends[s.Name])
			}
		}
		if len(u.names) > 0 {
			list = append(list, u)
		}
	}
	return list
}

// record captures the launches of a function in segments. One begins at the first launch that changes a state
// and, where buckets of gradients are followed, one wherever the use of a bucket begins or ends.
func (x *image) record(fn *function, slot int, uses []use) error {
	launches := fn.launches[slot]
	asks := changing(launches)
	if fn.changes = changed(launches[asks:]); fn.changes == nil {
		asks = 0 // nothing has to wait
	}
	cuts := []int{0, asks}
	for _, u := range uses {
		cuts = append(cuts, u.first, u.last)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	if n := len(cuts); n > 1 && cuts[n-1] == len(launches) {
		cuts = cuts[:n-1]
	}
	for i, from := range cuts {
		end := len(launches)
		if i+1 < len(cuts) {
			end = cuts[i+1]
		}
		s := segment{asks: from == asks}
		for _, u := range uses {
			if u.first == from {
				s.begins = append(s.begins, u.names...)
			}
			if u.last == end {
				s.ends = append(s.ends, u.names...)
			}
		}
		err := x.compute.BeginCapture()
		if err != nil {
			return err
		}
		if err = x.queue(launches[from:end]); err == nil && end == len(launches) {
			err = x.results(fn)
		}
		g, e := x.compute.EndCapture()
		if e == nil {
			s.graph = g
		}
		if err = errors.Join(err, e); err == nil {
			err = x.compute.Upload(g)
		}
		if err == nil && s.ends != nil {
			s.ended, err = x.ctx.NewEvent(false)
		}
		fn.segments[slot] = append(fn.segments[slot], s) // Close finds it there
		if err != nil {
			return err
		}
	}
	return nil
}

// replay runs the captured segments. If w is not nil, w.Begins is called before gradients are used, and
// segments that end some are sent to ended.
func (x *image) replay(fn *function, slot int, w *engine.Watch, ended chan<- *segment) error {
	for i := range fn.segments[slot] {
		s := &fn.segments[slot][i]
		if w != nil && s.begins != nil {
			if err := w.Begins(s.begins); err != nil {
				return err
			}
		}
		if s.asks {
			if err := x.ask(fn); err != nil {
				return err
			}
		}
		if err := x.compute.Replay(s.graph); err != nil {
			return err
		}
		if w != nil && s.ends != nil {
			if err := x.compute.Record(s.ended); err != nil {
				return err
			}
			ended <- s
		}
	}
	return nil
}

// RunWatched runs a function with w following it, and returns when the card has finished.
func (x *image) RunWatched(name string, slot int, w *engine.Watch) error {
	fn, err := x.begin(name)
	if err != nil {
		return err
	}
	if x.observer != nil || !fn.followed { // runs node by node, or was captured as a whole
		return x.runWhole(fn, slot, w)
	}
	x.beside.Store(true)
	ended := make(chan *segment, len(fn.segments[slot]))
	var told error
	var teller sync.WaitGroup
	teller.Go(func() {
		for s := range ended {
			if told == nil {
				if told = s.ended.Sync(); told == nil {
					told = w.Ends(s.ends)
				}
			}
		}
	})
	err = x.run(fn, slot, w, ended)
	close(ended)
	teller.Wait()
	if err = errors.Join(err, told); err != nil {
		return x.during(err)
	}
	return x.Sync()
}

// runWhole runs a function as if it used all gradients from beginning to end.
func (x *image) runWhole(fn *function, slot int, w *engine.Watch) error {
	var all []string
	for _, u := range usesOf(fn.f, fn.launches[slot], x.p.Buckets()) {
		all = append(all, u.names...)
	}
	if err := w.Begins(all); err != nil {
		return err
	}
	if err := x.run(fn, slot, nil, nil); err != nil {
		return x.during(err)
	}
	if err := x.Sync(); err != nil {
		return err
	}
	x.beside.Store(true)
	return w.Ends(all)
}
