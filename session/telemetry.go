package session

import (
	"sync"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train/rundir"
)

// telemetry samples the machine and the card once a second during a run, and stores the samples and the log
// in the run directory for monitors. It has a goroutine of its own, so that a disk or driver that hangs does
// not delay the run, and their errors do not end it.
type telemetry struct {
	sampler *device.Sampler
	card    func() nvml.Sample // nil if the device cannot be read
	saving  func() bool
	samples *monitor.SampleWriter // nil if they cannot be written
	log     *monitor.LogWriter    // nil if it cannot be written

	lines chan monitor.LogLine
	flush chan chan struct{}
	stop  chan struct{}
	done  chan struct{}

	mu     sync.Mutex
	update int64
	doing  monitor.Doing
	use    cardUse
}

// lookEvery is the interval between samples. NVML's own figures are means over the same time.
const lookEvery = time.Second

// patience is how long the end of a run waits for pending writes.
const patience = 2 * time.Second

// newTelemetry takes a first sample, whose CPU use covers the time since sampler was made. saving reports
// whether a checkpoint is being written.
func newTelemetry(card func() nvml.Sample, sampler *device.Sampler, dir *rundir.Dir, update int64, saving func() bool) *telemetry {
	t := &telemetry{
		sampler: sampler, card: card, saving: saving, update: update,
		lines: make(chan monitor.LogLine, 1024), flush: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
	}
	t.samples, _ = monitor.NewSampleWriter(dir) // the run does not need a file that cannot be read or created
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
		_ = t.samples.Add(s) // a later call writes it
	}
}

func (t *telemetry) write(l monitor.LogLine) {
	if t.log != nil {
		_ = t.log.Add(l) // a later call writes it
	}
}

// drain writes the waiting lines.
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

// does sets what the run is doing from now on.
func (t *telemetry) does(d monitor.Doing) {
	t.mu.Lock()
	t.doing = d
	t.mu.Unlock()
}

// updated sets the number of updates done.
func (t *telemetry) updated(update int64) {
	t.mu.Lock()
	t.update = update
	t.mu.Unlock()
}

// say adds a line to the log. If the disk hangs, lines are dropped rather than waited for.
func (t *telemetry) say(l monitor.LogLine) {
	select {
	case t.lines <- l:
	default:
	}
}

// latest returns the last sample of the card; ok is false if it cannot be read.
func (t *telemetry) latest() (s nvml.Sample, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.use.samples == 0 {
		return nvml.Unknown, false
	}
	return t.use.last, true
}

// cardUse returns the use of the card over the given seconds of updates; nil if it cannot be read.
func (t *telemetry) cardUse(seconds float64) *CardUse {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.use.sum(seconds)
}

// written waits, for a limited time, until the log and the samples so far are in the run directory.
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

// end writes what is left, waiting for a limited time.
func (t *telemetry) end() {
	close(t.stop)
	select {
	case <-t.done:
	case <-time.After(patience):
	}
}
