package terminal

import (
	"fmt"
	"sync"
	"time"

	"github.com/snug-ml/snug/monitor"
)

// costShare bounds the cost of watching: each look is followed by a pause of costShare
// times its duration.
const costShare = 200

// unchanged is how often the times in a snapshot are refreshed while nothing is written.
const unchanged = 5 * time.Second

// Watcher reads runs for a screen. Any goroutine may use it.
type Watcher struct {
	mu      sync.Mutex
	runs    []*monitor.Run
	machine *monitor.Machine // nil: runs are watched
	frame   Frame
	view    monitor.View
	rest    time.Time // no look before then, unless another view is requested
	looked  time.Time
	stale   bool // something was written that the frame does not show
}

// WatchRuns watches runs.
func WatchRuns(runs ...*monitor.Run) *Watcher { return &Watcher{runs: runs} }

// WatchMachine watches only the machine.
func WatchMachine(m *monitor.Machine) *Watcher { return &Watcher{machine: m} }

// Look reads what is new. If nothing is, that costs a stat of each file.
func (w *Watcher) Look(v monitor.View) (f Frame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		// A bug here must not leave the terminal in the screen's mode.
		if e := recover(); e != nil {
			f = Frame{Now: time.Now(), Err: monitor.Printable(fmt.Sprint(e)), News: true}
		}
	}()
	now := time.Now()
	if w.machine != nil {
		w.machine.Look()
		return Frame{Now: now, Runs: []*monitor.Snapshot{w.machine.Snapshot(now, v)}, News: true}
	}
	for _, r := range w.runs {
		news, _ := r.Poll() // a missing folder shows in its snapshot
		w.stale = w.stale || news
	}
	old := w.stale || now.Sub(w.looked) >= unchanged
	if v == w.view && w.frame.Runs != nil && (!old || now.Before(w.rest)) {
		f := w.frame
		f.News = false
		return f
	}
	f = Frame{Now: now, News: true}
	for _, r := range w.runs {
		f.Runs = append(f.Runs, r.Snapshot(now, v))
	}
	w.frame, w.view, w.looked, w.stale = f, v, now, false
	w.rest = time.Now().Add(costShare * time.Since(now))
	return f
}

// Over reports whether every run of a frame has ended.
func (f *Frame) Over() bool {
	for _, s := range f.Runs {
		if !s.State.Over() && s.State != monitor.Gone {
			return false
		}
	}
	return len(f.Runs) > 0
}
