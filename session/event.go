package session

import (
	"sync"

	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
)

// Event is something that happens during a run. Updates send [train.Step], [train.Evaluated], [train.Warned]
// and [train.Ended]; checkpoints send checkpoint.Event, remote.UploadEvent and remote.RetryEvent; the run as
// a whole sends the events of this package. An observer should ignore events that it does not know.
type Event = train.Event

// Info is a line about what is being done.
type Info struct{ Text string }

// PhaseBegins precedes each phase of a training with several phases.
type PhaseBegins struct {
	Number, Of  int // counted from 1
	Name, Title string
}

// Planned describes what will run, before any data is read.
type Planned struct {
	*Setup
	Report *plan.Report
}

// Begins precedes the first update of a session, when everything that can be rejected has been checked.
// Report is the plan for the data that was found.
type Begins struct {
	*Setup
	Report *plan.Report
	// Dir is the run directory, where a monitor can find the run from here on.
	Dir string
	// Look returns the latest sample of the card, at most a second old; ok is false if no card can be read.
	// It may be called from an event handler of the run.
	Look func() (s nvml.Sample, ok bool)
	// Expected is the work left in this run. Whole also includes what is known of the later phases, and Of is
	// the number of runs it covers.
	Expected, Whole Expected
	Of              int
	// Shorter is a shorter variant of a quickstart for a slow machine; nil if there is none.
	Shorter *Shorter
}

// Trained follows the last update. Result is nil if the run failed before it had one.
type Trained struct{ Result *train.Result }

// SampleBegins precedes the text that a trained language model writes. From names its checkpoint.
type SampleBegins struct{ From string }

// SampleText is a piece of the text that follows [SampleBegins].
type SampleText struct{ Text string }

// SampleEnds follows the last [SampleText].
type SampleEnds struct{}

// Finished summarizes a run.
type Finished struct {
	*Setup
	Summary *Summary
	// Err is why the run ended before its last update; nil if it completed.
	Err error
	// Dir is the current path of the run directory, and Out the value of --out that continues it.
	Dir, Out  string
	Monitor   train.Metric
	Baselines []system.Baseline
}

// stream passes events on one at a time, from any goroutine.
type stream struct {
	mu      sync.Mutex
	onEvent func(Event)
	note    func(Event) // of the current run; nil if there is none
}

// keep makes note receive every later event before the observer does.
func (s *stream) keep(note func(Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note = note
}

func (s *stream) emit(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.note != nil {
		s.note(e)
	}
	if s.onEvent != nil {
		s.onEvent(e)
	}
}
