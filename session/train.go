package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
)

// Options say what to train, where, and who is notified.
type Options struct {
	// Sources name the configuration.
	Sources config.Sources
	// Dir is the run directory; by default run.out, runs/PRESET, or runs/SYSTEM without a preset.
	Dir string
	// Resume continues from the newest intact checkpoint in Dir. If Sources name no configuration, it uses
	// that of the run; if they do, a run without a checkpoint begins. Fresh starts over and removes existing
	// checkpoints in Dir. With neither, a run is rejected if Dir already has one.
	Resume, Fresh bool
	// Until saves and stops after so many updates, with [train.ErrStopped]; 0 means never.
	Until int64
	// Phase is the phase to run of a system that trains in phases, or all; empty means the configured one.
	Phase string
	// Group connects rank 0 to the processes that train together; the others call [Follow]. It is nil if this
	// process trains alone. Local is its place on its machine.
	Group dist.Group
	Local Local
	// Replay runs [Check.Replay] in a process of its own, on the run in dir and a device as hardware.device
	// names it. If it is nil, nothing is computed again after a card is lost.
	Replay func(ctx context.Context, dir string, update int64, on string) (*Replayed, error)
	// OnEvent receives every event, in order and one at a time, on any goroutine. It must not wait for the
	// run. It may be nil.
	OnEvent func(Event)
}

// Result is the result of training.
type Result struct {
	// Summary of the run; nil if it consists of phases.
	*Summary
	Phases []PhaseSummary
}

// Train trains one run, or all phases of a system that trains in phases, one after another. When ctx ends, it
// saves the state and returns [train.ErrStopped] with the result.
func Train(ctx context.Context, o Options) (result *Result, err error) {
	t := &training{Options: o, ctx: ctx, stream: &stream{onEvent: o.OnEvent}, carrier: &carrier{met: o.Group}, base: liveHeap()}
	defer func() { err = errors.Join(err, t.carrier.leave(err)) }()
	if err := t.ofRun(); err != nil {
		return nil, err
	}
	if t.Sources, err = Respelled(t.Sources, t.emit); err != nil {
		return nil, err
	}
	s, err := t.load(nil)
	if err != nil {
		return nil, err
	}
	if err := s.missing(); err != nil {
		return nil, err
	}
	if _, err := s.remote(); err != nil { // before anything is created or replaced
		return nil, err
	}
	dir := t.dir(s.Config)
	if s.System.Phases != nil {
		if phases := s.System.Phases(s.Config, dir); len(phases) > 0 {
			done, err := t.phases(s.Config, dir)
			return &Result{Phases: done}, t.dismissed(err)
		}
	}
	summary, err := t.one(s, dir, nil)
	return &Result{Summary: summary}, t.dismissed(err)
}

// dismissed releases the other ranks if training ended without a failure.
func (t *training) dismissed(err error) error {
	if err != nil && !errors.Is(err, train.ErrStopped) {
		return err
	}
	return errors.Join(err, dismiss(t.Group))
}

// training is what the runs of one call of [Train] share.
type training struct {
	Options
	*stream
	ctx     context.Context
	carrier *carrier
	base    int64 // heap in use before the training began
	warned  []Event
	// phasesLater lists the phases after the current one, if that is the first.
	phasesLater []system.Phase
}

// from returns the sources of the configuration, with extra settings.
func (t *training) from(extra []config.Override) config.Sources {
	from := t.Sources
	if t.Phase != "" {
		from.Overrides = Overridden(from.Overrides, []config.Override{{Key: "phases.run", Text: t.Phase, Flag: "--phase"}})
	}
	from.Overrides, from.NeedData = Overridden(from.Overrides, extra), true
	return from
}

// load resolves the configuration with extra settings.
func (t *training) load(extra []config.Override) (*Setup, error) {
	s, err := loadAs(t.ctx, t.from(extra), t.Local, false, func(e Event) {
		if !slices.Contains(t.warned, e) { // every phase loads the configuration again, but should warn once
			t.warned = append(t.warned, e)
			t.emit(e)
		}
	})
	if err == nil && t.Group != nil {
		s.World = t.Group.World()
	}
	return s, err
}

func (t *training) infof(format string, args ...any) { t.emit(Info{fmt.Sprintf(format, args...)}) }

func (t *training) warnf(format string, args ...any) {
	t.emit(train.Warned{Text: fmt.Sprintf(format, args...)})
}

// one trains one run in dir, which may be that of a phase.
func (t *training) one(s *Setup, dir string, phase *phaseOf) (*Summary, error) {
	if err := s.missing(); err != nil {
		return nil, err
	}
	server, err := trackingServer(s.Config)
	if err != nil {
		return nil, err
	}
	r := &run{training: t, Setup: s, dir: dir, phase: phase, started: time.Now(), server: server}
	t.keep(r.note)
	defer t.keep(nil)
	err = r.train()
	return r.summary, err
}

// missing names a setting that training needs although planning does not.
func (s *Setup) missing() error {
	if s.System.Missing == nil {
		return nil
	}
	if err := s.System.Missing(s.Config); err != nil {
		return UsageError{err}
	}
	return nil
}

// dir returns the run directory.
func (t *training) dir(c *config.Config) string {
	switch {
	case t.Dir != "":
		return t.Dir
	case c.Run.Out != "":
		return c.Run.Out
	case c.Preset != "":
		return filepath.Join("runs", c.Preset)
	}
	return filepath.Join("runs", c.System)
}
