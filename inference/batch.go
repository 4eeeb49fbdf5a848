package inference

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// ErrBusy reports a full queue, ErrStopping a server that is shutting down.
var (
	ErrBusy     = errors.New("too many requests are waiting")
	ErrStopping = errors.New("the server is shutting down")
)

// Batcher computes the items of many goroutines together: items that arrive while a
// micro-batch is computed go into the next one. Nothing waits for a batch to fill: an
// item that arrives alone is computed alone.
type Batcher[In, Out any] struct {
	compute func(items []In) ([]Out, error)
	most    int
	queue   chan *job[In, Out]
	stop    chan struct{}
	done    chan struct{}
	once    sync.Once

	items, batches atomic.Int64
}

// job is the items of a request.
type job[In, Out any] struct {
	ctx    context.Context
	items  []In
	answer chan outcome[Out]
}

type outcome[Out any] struct {
	results []Out
	err     error
}

// NewBatcher starts a batcher around compute, which it calls from one goroutine; it adds
// no more requests to a call once there are most items. waiting is how many requests may
// wait. The caller must close it.
func NewBatcher[In, Out any](waiting, most int, compute func(items []In) ([]Out, error)) *Batcher[In, Out] {
	b := &Batcher[In, Out]{
		compute: compute, most: most, queue: make(chan *job[In, Out], waiting),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go b.loop()
	return b
}

// Counts returns how many items and micro-batches were computed.
func (b *Batcher[In, Out]) Counts() (items, batches int64) { return b.items.Load(), b.batches.Load() }

// Waiting returns how many requests wait.
func (b *Batcher[In, Out]) Waiting() int { return len(b.queue) }

// Do waits for the results of items. The error is [ErrBusy] if too many wait,
// [ErrStopping] after Close.
func (b *Batcher[In, Out]) Do(ctx context.Context, items []In) ([]Out, error) {
	j := &job[In, Out]{ctx, items, make(chan outcome[Out], 1)}
	select {
	case <-b.stop:
		return nil, ErrStopping
	default:
	}
	select {
	case b.queue <- j:
	default:
		return nil, ErrBusy
	}
	select {
	case r := <-j.answer:
		return r.results, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-b.done:
		// The loop may have answered just before it ended.
		select {
		case r := <-j.answer:
			return r.results, r.err
		default:
			return nil, ErrStopping
		}
	}
}

func (b *Batcher[In, Out]) loop() {
	defer close(b.done)
	for {
		select {
		case j := <-b.queue:
			b.run(j)
		case <-b.stop:
			for { // accepted requests are answered
				select {
				case j := <-b.queue:
					b.run(j)
				default:
					return
				}
			}
		}
	}
}

// run computes a job together with those that wait after it.
func (b *Batcher[In, Out]) run(first *job[In, Out]) {
	var jobs []*job[In, Out]
	var items []In
	take := func(j *job[In, Out]) {
		if err := j.ctx.Err(); err != nil {
			j.answer <- outcome[Out]{nil, err} // its caller no longer waits
			return
		}
		jobs, items = append(jobs, j), append(items, j.items...)
	}
	take(first)
	for len(items) < b.most {
		select {
		case j := <-b.queue:
			take(j)
			continue
		default:
		}
		break
	}
	if len(jobs) == 0 {
		return
	}
	results, err := b.compute(items)
	b.items.Add(int64(len(items)))
	b.batches.Add(1)
	for _, j := range jobs {
		if err != nil {
			j.answer <- outcome[Out]{nil, err}
			continue
		}
		j.answer <- outcome[Out]{results[:len(j.items)], nil}
		results = results[len(j.items):]
	}
}

// Close answers waiting requests and ends.
func (b *Batcher[In, Out]) Close() {
	b.once.Do(func() { close(b.stop) })
	<-b.done
}
