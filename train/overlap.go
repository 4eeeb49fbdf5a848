package train

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// overlap makes an exchange overlap with computation: a goroutine makes all calls of the
// group while an update has rounds in progress, bucket by bucket, in the order in which runs
// finish with them. A run waits before it reuses a gradient that was not taken yet.
type overlap struct {
	groups map[string]int // the index of the program's bucket that contains a gradient
	sizes  []int          // number of gradients in each
	rounds chan *round    // to the goroutine
	ended  chan struct{}  // closed when the goroutine has ended

	mu      sync.Mutex
	changed sync.Cond // signals changes of anything below
	open    []int     // gradients of each bucket that the current run has not finished with
	ready   []bool    // buckets that can be taken
	hand    int       // rounds that have begun and are not done
	asked   int       // rounds after which ranks have said whether to stop
	stop    bool      // one of them wants to
	err     error     // what ended the exchange
	busy    time.Duration
	waited  time.Duration // by the run and between runs
}

// round is what the ranks do with one micro-batch each.
type round struct {
	ctx      context.Context // ranks stop after the round when this ends
	first    bool            // of the update
	last     bool            // of the update
	computed int             // ranks that exchange gradients: the first ones
	mine     bool            // this rank has a micro-batch
	micro    int             // its number in the rank's block, if gradients are added up in pairs
	local    bool            // nothing is exchanged; each rank only adds up its own
}

func (e *exchange) start(groups [][]*graph.State) {
	e.groups, e.rounds, e.ended = map[string]int{}, make(chan *round, 1), make(chan struct{})
	for i, list := range groups {
		e.sizes = append(e.sizes, len(list))
		for _, s := range list {
			e.groups[s.Name] = i
		}
	}
	e.open, e.ready = make([]int, len(groups)), make([]bool, len(groups))
	e.changed.L = &e.mu
	go e.work()
}

// begin begins a round; the goroutine may still be at the previous one.
func (e *exchange) begin(r *round) error {
	e.mu.Lock()
	e.hand++
	e.mu.Unlock()
	defer e.waiting(time.Now())
	select {
	case e.rounds <- r:
		return nil
	case <-e.ended:
		return e.err
	}
}

// run computes this rank's micro-batch of a round.
func (e *exchange) run(fn string, slot int) error {
	e.mu.Lock()
	copy(e.open, e.sizes)
	e.mu.Unlock()
	if err := e.x.RunWatched(fn, slot, &engine.Watch{Begins: e.begins, Ends: e.ends}); err != nil {
		return err
	}
	e.mu.Lock() // the function may not use all gradients
	defer e.mu.Unlock()
	for i, n := range e.open {
		for n > 0 && e.ready[i] && e.err == nil { // from the previous round
			e.changed.Wait()
		}
		e.ready[i] = e.ready[i] || n > 0
	}
	e.changed.Broadcast()
	return e.err
}

// begins waits until the gradients of the previous round have been taken.
func (e *exchange) begins(gradients []string) error {
	defer e.waiting(time.Now())
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range gradients {
		for e.ready[e.groups[name]] && e.err == nil {
			e.changed.Wait()
		}
	}
	return e.err
}

// ends makes buckets ready that a run has finished with.
func (e *exchange) ends(gradients []string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range gradients {
		i := e.groups[name]
		if e.open[i]--; e.open[i] == 0 {
			e.ready[i] = true
			e.changed.Broadcast()
		}
	}
	return e.err
}

// wait waits for all rounds.
func (e *exchange) wait() error {
	defer e.waiting(time.Now())
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.hand > 0 && e.err == nil {
		e.changed.Wait()
	}
	e.asked = 0
	return e.err
}

// stops reports whether a rank wanted to stop when the first bucket of the update's given
// round was exchanged. In that case all rounds are done.
func (e *exchange) stops(rounds int) (bool, error) {
	defer e.waiting(time.Now())
	e.mu.Lock()
	for e.asked < rounds && e.err == nil {
		e.changed.Wait()
	}
	stop, err := e.stop, e.err
	e.mu.Unlock()
	if stop && err == nil {
		err = e.wait()
	}
	return stop, err
}

// waiting counts the time waited since.
func (e *exchange) waiting(since time.Time) {
	took := time.Since(since)
	e.mu.Lock()
	e.waited += took
	e.mu.Unlock()
}

// times returns the time of the exchange since the last call: how long the rank waited
// for it, and how long it ran while the rank computed.
func (e *exchange) times() (waited, hidden time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	waited, hidden = e.waited, max(0, e.busy-e.waited)
	e.waited, e.busy = 0, 0
	return waited, hidden
}

// work is the body of the goroutine.
func (e *exchange) work() {
	defer close(e.ended)
	for r := range e.rounds {
		err := e.exchange(r)
		e.mu.Lock()
		e.hand--
		if e.err == nil {
			e.err = err
		}
		err = e.err
		e.changed.Broadcast()
		e.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// exchange exchanges the gradients of a round.
func (e *exchange) exchange(r *round) error {
	for i := range e.buckets {
		k := &e.buckets[i]
		if err := e.due(k, r.mine); err != nil {
			return err
		}
		began := time.Now()
		if r.mine {
			err := e.take(k)
			if err == nil && e.sums == Tree {
				err = e.fold(k, r.micro)
			}
			if err != nil {
				return err
			}
			if i+1 == len(e.buckets) || e.buckets[i+1].group != k.group {
				e.taken(k.group)
			}
		}
		if i == 0 && !r.last && !r.local {
			if err := e.ask(r.ctx); err != nil {
				return err
			}
		}
		if !r.local {
			if err := e.add(k, r.computed, r.first); err != nil {
				return err
			}
		}
		if r.last {
			if err := e.spread(k); err != nil {
				return err
			}
		}
		if r.last && e.shared && i+1 == len(e.buckets) {
			if err := e.norm(); err != nil {
				return err
			}
		}
		e.mu.Lock()
		e.busy += time.Since(began)
		e.mu.Unlock()
	}
	return nil
}

// due waits until a bucket can be taken, if it will be.
func (e *exchange) due(k *bucket, mine bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for mine && !e.ready[k.group] && e.err == nil {
		e.changed.Wait()
	}
	return e.err
}

// taken lets the next run use the gradients of a bucket.
func (e *exchange) taken(group int) {
	e.mu.Lock()
	e.ready[group] = false
	e.changed.Broadcast()
	e.mu.Unlock()
}

// ask makes ranks say whether to stop.
func (e *exchange) ask(ctx context.Context) error {
	stop, err := anybody(e.g, ctx.Err() != nil)
	e.mu.Lock()
	e.stop = stop
	e.asked++
	e.changed.Broadcast()
	e.mu.Unlock()
	return err
}

var errUnfinished = errors.New("an update was left unfinished")

// close ends the exchange and frees its memory. A run that was stopped ends well. If a round is
// in progress, it leaves the group, which ends a call that waits for other ranks.
func (e *exchange) close(cause error) error {
	e.mu.Lock()
	if errors.Is(cause, ErrStopped) {
		cause = nil
	}
	unfinished := e.hand > 0 && e.err == nil
	if unfinished {
		if e.err = cause; cause == nil {
			e.err = errUnfinished
		}
		e.changed.Broadcast()
	}
	if e.err != nil {
		cause = e.err
	}
	e.mu.Unlock()
	var err error
	if unfinished {
		err = e.g.Leave(cause)
	}
	close(e.rounds)
	<-e.ended
	return errors.Join(err, e.free(cause))
}
