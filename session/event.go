package session

import (
	"sync"

	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
)

// Event is something that happens in the course of a run. Of an update these are
// [train.Step], [train.Evaluated], [train.Warned] and [train.Ended]; of its
// checkpoints checkpoint.Event, remote.UploadEvent and remote.RetryEvent; of the
// run as a whole those of this package. An observer ignores what it does not know.
type Event = train.Event

// Info is a line about what is being done.
type Info struct{ Text string }

// PhaseBegins comes before a phase of a training that consists of several.
type PhaseBegins struct {
	Number, Of  int // from 1
	Name, Title string
}

// Planned is what will be run, before data is touched.
type Planned struct {
	*Setup
	Report *plan.Report
}

// Begins comes before the first update of a session, when nothing can be refused
// any more. Report is the plan with the data that was found.
type Begins struct {
	*Setup
	Report *plan.Report
	// Dir is the run directory, in which a monitor finds the run from here on.
	Dir string
	// Look is what the card showed a second ago or less; ok is false where no card
	// can be read. It may be called while an event of the run is handled.
	Look func() (s nvml.Sample, ok bool)
	// Expected is what is left to do, Whole that and what is known of the phases that
	// follow the first one that is trained: the run is one of Of.
	Expected, Whole Expected
	Of              int
	// Shorter is what a quickstart could be started as on a slow machine; nil: nothing
	// shorter.
	Shorter *Shorter
}

// Trained comes after the last update; Result is nil where the run failed before
// it had one.
type Trained struct{ Result *train.Result }

// SampleBegins comes before the text that a trained language model writes, From
// names its checkpoint. SampleText is a piece of it.
type SampleBegins struct{ From string }

// SampleText is a piece of the text after [SampleBegins].
type SampleText struct{ Text string }

// SampleEnds comes after the last [SampleText].
type SampleEnds struct{}

// Finished sums a run up.
type Finished struct {
	*Setup
	Summary *Summary
	// Err is why the run ended before its last update, nil if it did not.
	Err error
	// Dir is the run directory, as it is called by now, and Out what to give as
	// --out to continue it.
	Dir, Out  string
	Monitor   train.Metric
	Baselines []system.Baseline
}

// stream passes events on, one after the other, from whatever goroutine they come.
type stream struct {
	mu      sync.Mutex
	onEvent func(Event)
	note    func(Event) // of the current run; nil: there is none
}

// keep makes note see every event from now on, before the observer.
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
