package session

import (
	"sync"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train/rundir"
)

// telemetry samples the machine and the card once a second during a run, and keeps
// the samples, and the log, in the run directory for whoever watches. It does so on
// a goroutine of its own: neither a disk nor a driver that hangs holds the run up,
// and no error of theirs ends it.
type telemetry struct {
	sampler *device.Sampler
	card    func() nvml.Sample // nil: the device cannot be read
	saving  func() bool
	samples *monitor.SampleWriter // nil: it cannot be written
	log     *monitor.LogWriter    // likewise

	lines chan monitor.LogLine
	flush chan chan struct{}
	stop  chan struct{}
	done  chan struct{}

	mu     sync.Mutex
	update int64
	doing  monitor.Doing
	use    cardUse
}

// lookEvery is how often the machine is looked at: NVML's own figures are means of as
// long.
const lookEvery = time.Second

// patience is how long the end of a run waits for what is still to be written.
const patience = 2 * time.Second

// newTelemetry begins with a first look, whose CPU use is of the time since sampler was
// made; saving says whether a checkpoint is being written.
func newTelemetry(card func() nvml.Sample, sampler *device.Sampler, dir *rundir.Dir, update int64, saving func() bool) *telemetry {
	t := &telemetry{
		sampler: sampler, card: card, saving: saving, update: update,
		lines: make(chan monitor.LogLine, 1024), flush: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	t.samples, _ = monitor.NewSampleWriter(dir) // a file that cannot be read or made is not needed
	t.log, _ = monitor.NewLogWriter(dir)
	t.look()
	go t.run()
	return t
}

func (t *telemetry) run() {
	defer close(t.done)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.look()
		case l := <-t.lines:
			t.write(l)
		case written := <-t.flush:
			t.look()
			t.drain()
			close(written)
		case <-t.stop:
			t.look()
			t.drain()
			t.close()
			return
		}
	}
}

// look takes a sample.
func (t *telemetry) look() {
	s := monitor.NewSample(t.sampler.Sample())
	var card nvml.Sample
	if t.card != nil {
		card = t.card()
		s.GPU = monitor.NewGPUSample(card)
	}
	saving := t.saving()
	t.mu.Lock()
	if t.card != nil {
		t.use.add(card)
	}
	if s.Update, s.Doing = t.update, t.doing; s.Doing == monitor.Training && saving {
		s.Doing = monitor.Saving
	}
	t.mu.Unlock()
	if t.samples != nil {
		_ = t.samples.Add(s) // it is written with a later one
	}
}

func (t *telemetry) write(l monitor.LogLine) {
	if t.log != nil {
		_ = t.log.Add(l) // it is written with a later one
	}
}

// drain writes the lines that wait.
func (t *telemetry) drain() {
	for {
		select {
		case l := <-t.lines:
			t.write(l)
		default:
			return
		}
	}
}

func (t *telemetry) close() {
	if t.samples != nil {
		_ = t.samples.Close()
	}
	if t.log != nil {
		_ = t.log.Close()
	}
}

// does sets what the run does from now on.
func (t *telemetry) does(d monitor.Doing) {
	t.mu.Lock()
	t.doing = d
	t.mu.Unlock()
}

// updated sets how many updates are done.
func (t *telemetry) updated(update int64) {
	t.mu.Lock()
	t.update = update
	t.mu.Unlock()
}

// say adds a line to the log; where its disk hangs, lines are lost rather than waited
// for.
func (t *telemetry) say(l monitor.LogLine) {
	select {
	case t.lines <- l:
	default:
	}
}

// latest is what the card showed last; ok is false where it cannot be read.
func (t *telemetry) latest() (s nvml.Sample, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.use.samples == 0 {
		return nvml.Unknown, false
	}
	return t.use.last, true
}

// cardUse is the use of the card in so many seconds of updates; nil where it cannot
// be read.
func (t *telemetry) cardUse(seconds float64) *CardUse {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.use.sum(seconds)
}

// written waits until the log and the samples so far are in the run directory, or for
// as long as is reasonable.
func (t *telemetry) written() {
	done := make(chan struct{})
	late := time.After(patience)
	select {
	case t.flush <- done:
		select {
		case <-done:
		case <-late:
		}
	case <-t.done:
	case <-late:
	}
}

// end writes what is left, and waits for it as long as is reasonable.
func (t *telemetry) end() {
	close(t.stop)
	select {
	case <-t.done:
	case <-time.After(patience):
	}
}
