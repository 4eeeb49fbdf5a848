package data

import (
	"errors"
	"io"
	"sync"
)

var errClosed = errors.New("data: loader is closed")

// ring fills numbered items ahead of their use into a fixed set of slots. Workers take
// numbers in turn and fill slots in parallel; the consumer gets them in order. A slot's
// content is a function only of its number, so the stream does not depend on the number
// of workers.
type ring[S any] struct {
	fill func(n int64, slot *S) error

	mu      sync.Mutex
	changed sync.Cond
	slots   []slot[S]
	claimed int64 // next number to fill
	taken   int64 // next number to pass to the consumer
	loaned  bool  // slot of number taken-1 is with the consumer
	limit   int64 // first number that does not exist
	busy    int   // workers inside fill
	closed  bool
	workers sync.WaitGroup
}

type slot[S any] struct {
	value S
	n     int64 // number that it holds, -1 for none
	err   error
}

// newRing starts the workers. One slot is with the consumer and the others are
// filled meanwhile.
func newRing[S any](values []S, workers int, limit int64, fill func(n int64, slot *S) error) *ring[S] {
	r := &ring[S]{fill: fill, limit: limit, slots: make([]slot[S], len(values))}
	r.changed.L = &r.mu
	for i := range values {
		r.slots[i] = slot[S]{value: values[i], n: -1}
	}
	for range workers {
		r.workers.Go(r.work)
	}
	return r
}

func (r *ring[S]) work() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for !r.closed && !r.room() {
			r.changed.Wait()
		}
		if r.closed {
			return
		}
		n := r.claimed
		r.claimed++
		r.busy++
		s := &r.slots[n%int64(len(r.slots))]
		s.n = -1
		r.mu.Unlock()
		err := r.fill(n, &s.value)
		r.mu.Lock()
		s.n, s.err = n, err
		r.busy--
		r.changed.Broadcast()
	}
}

// room reports whether the next number exists and its slot is free.
func (r *ring[S]) room() bool {
	first := r.taken // oldest number still in a slot
	if r.loaned {
		first--
	}
	return r.claimed < r.limit && r.claimed-first < int64(len(r.slots))
}

// next takes back the previous slot and returns the following one. After the last one it
// returns io.EOF. An error is permanent.
func (r *ring[S]) next() (*S, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaned {
		r.loaned = false
		r.changed.Broadcast()
	}
	s := &r.slots[r.taken%int64(len(r.slots))]
	for {
		switch {
		case r.closed:
			return nil, errClosed
		case r.taken >= r.limit:
			return nil, io.EOF
		case s.n != r.taken:
			r.changed.Wait()
		case s.err != nil:
			return nil, s.err
		default:
			r.taken++
			r.loaned = true
			return &s.value, nil
		}
	}
}

// restart discards what was filled ahead and begins again at number 0. move runs while no
// worker fills and returns the new limit.
func (r *ring[S]) restart(move func() (limit int64)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit = 0 // no worker may start
	for r.busy > 0 {
		r.changed.Wait()
	}
	if r.closed {
		return errClosed
	}
	for i := range r.slots {
		r.slots[i].n, r.slots[i].err = -1, nil
	}
	r.claimed, r.taken, r.loaned = 0, 0, false
	r.limit = move()
	r.changed.Broadcast()
	return nil
}

// close stops the workers and waits for them. It may be called twice.
func (r *ring[S]) close() {
	r.mu.Lock()
	r.closed = true
	r.changed.Broadcast()
	r.mu.Unlock()
	r.workers.Wait()
}
