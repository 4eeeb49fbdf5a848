package moderation

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// batcher runs a classifier for many goroutines at once: what arrives while a
// micro-batch is computed goes into the next one together. Nobody waits for
// company: a text that comes alone is computed alone.
type batcher struct {
	k     *Classifier
	queue chan *job
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once
	// texts and batches count what was computed.
	texts, batches atomic.Int64
}

// job is the texts of a request.
type job struct {
	ctx    context.Context
	texts  []*Encoded
	answer chan outcome
}

type outcome struct {
	probs []float64
	err   error
}

// errBusy reports a full queue, errStopping a server that is going down.
var (
	errBusy     = errors.New("too many requests are waiting")
	errStopping = errors.New("the server is going down")
)

// gather is how many texts are computed at most before answers are given.
const gather = 64

func newBatcher(k *Classifier, waiting int) *batcher {
	b := &batcher{k: k, queue: make(chan *job, waiting), stop: make(chan struct{}), done: make(chan struct{})}
	go b.loop()
	return b
}

// classify waits for the probabilities of texts.
func (b *batcher) classify(ctx context.Context, texts []*Encoded) ([]float64, error) {
	j := &job{ctx, texts, make(chan outcome, 1)}
	select {
	case <-b.stop:
		return nil, errStopping
	default:
	}
	select {
	case b.queue <- j:
	default:
		return nil, errBusy
	}
	select {
	case r := <-j.answer:
		return r.probs, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-b.done:
		// The loop may have answered with its last breath.
		select {
		case r := <-j.answer:
			return r.probs, r.err
		default:
			return nil, errStopping
		}
	}
}

func (b *batcher) loop() {
	defer close(b.done)
	for {
		select {
		case j := <-b.queue:
			b.run(j)
		case <-b.stop:
			for { // what was accepted is answered
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

// run computes a job and those that wait behind it.
func (b *batcher) run(first *job) {
	jobs := []*job{}
	var texts []*Encoded
	take := func(j *job) {
		if err := j.ctx.Err(); err != nil {
			j.answer <- outcome{nil, err} // nobody waits for it any more
			return
		}
		jobs, texts = append(jobs, j), append(texts, j.texts...)
	}
	take(first)
	for len(texts) < gather {
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
	probs, err := b.k.Probabilities(context.Background(), texts)
	b.texts.Add(int64(len(texts)))
	b.batches.Add(1)
	for _, j := range jobs {
		if err != nil {
			j.answer <- outcome{nil, err}
			continue
		}
		j.answer <- outcome{probs[:len(j.texts)], nil}
		probs = probs[len(j.texts):]
	}
}

// close answers what waits and ends.
func (b *batcher) close() {
	b.once.Do(func() { close(b.stop) })
	<-b.done
}
