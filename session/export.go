package session

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/tensorboard"
)

// exporter writes the figures of a run in the formats of other programs. It has a goroutine of its own, so
// that a slow disk does not delay the run and an error does not end it.
type exporter struct {
	queue chan figures
	done  chan struct{}
	write func(figures) error
	close func() error
	warn  func(format string, args ...any)
	over  atomic.Bool // the run has ended, so nobody is listening
	lost  int         // figures dropped because the queue was full
}

// figures are the figures of one update.
type figures struct {
	update  int64
	at      time.Time
	scalars []tensorboard.Scalar
}

// queuedFigures is how many figures may wait for a slow disk.
const queuedFigures = 1024

// newTensorBoard starts to export event files to the run directory.
func (r *run) newTensorBoard(from int64) (*exporter, error) {
	w, err := tensorboard.Create(r.store.Run(), time.Now(), from)
	if err != nil {
		return nil, err
	}
	return newExporter(func(f figures) error { return w.Add(f.at, f.update, f.scalars) }, w.Close, r.warnf), nil
}

func newExporter(write func(figures) error, closing func() error, warn func(string, ...any)) *exporter {
	x := &exporter{queue: make(chan figures, queuedFigures), done: make(chan struct{}), write: write, close: closing}
	x.warn = func(format string, args ...any) {
		if !x.over.Load() {
			warn("metrics.tensorboard: "+format, args...)
		}
	}
	go x.run()
	return x
}

func (x *exporter) run() {
	defer close(x.done)
	var failed error
	for f := range x.queue {
		if failed != nil {
			continue
		}
		if failed = x.write(f); failed != nil {
			x.warn("%v; the run goes on without", failed)
		}
	}
	if err := x.close(); err != nil && failed == nil {
		x.warn("%v", err)
	}
}

// add queues the figures of an event, if it has any.
func (x *exporter) add(e train.Event, unit string) {
	f := figures{at: time.Now()}
	add := func(tag string, v float64) { f.scalars = append(f.scalars, tensorboard.Scalar{Tag: tag, Value: v}) }
	switch e := e.(type) {
	case train.Step:
		if !e.Log {
			return
		}
		f.update = e.Update
		add(tagLoss, e.Loss)
		add(tagLR, e.LR)
		add(tagGradNorm, e.GradNorm)
		if e.Scale != 0 {
			add(tagLossScale, e.Scale)
		}
		if s := e.Took.Seconds(); s > 0 {
			add(tagRate(unit), float64(e.NewTokens)/s)
			add(tagSeconds, s)
			add(tagWait, e.Wait.Seconds())
		}
	case train.Evaluated:
		f.update = e.Update
		for _, name := range slices.Sorted(maps.Keys(e.Metrics)) {
			add(tagEval+name, e.Metrics[name])
		}
	default:
		return
	}
	select {
	case x.queue <- f:
	default:
		x.lost++
	}
}

// end writes what is left, waiting for a limited time.
func (x *exporter) end() {
	close(x.queue)
	select {
	case <-x.done:
	case <-time.After(patience):
		x.warn("what is left could not be written in time")
	}
	if x.lost > 0 {
		x.warn("figures of %s are missing: the disk was too slow for them", size.Of(x.lost, "update"))
	}
	x.over.Store(true)
}
