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

// Options are what to train, where, and who watches.
type Options struct {
	// Sources of the configuration.
	Sources config.Sources
	// Dir is the run directory; empty: run.out, or runs/PRESET.
	Dir string
	// Resume continues from the newest intact checkpoint in Dir. Where Sources name no
	// configuration it is that of the run; where they do, a run that has no
	// checkpoint begins. Fresh starts over where Dir holds checkpoints, which are
	// removed. With neither, a run is refused where there is one.
	Resume, Fresh bool
	// Until saves and stops after so many updates, with [train.ErrStopped]; 0: never.
	Until int64
	// Phase is the one to run of a system that trains in phases, or all; empty: the
	// configured one.
	Phase string
	// Group is this process's end of those that train together, rank 0's; the others call
	// [Follow]. nil: this process trains alone. Local is its place on its machine.
	Group dist.Group
	Local Local
	// Replay is [Check.Replay] of the run in dir on a device, as hardware.device names it, in a process
	// of its own; nil: nothing is computed again where a card is lost.
	Replay func(ctx context.Context, dir string, update int64, on string) (*Replayed, error)
	// OnEvent gets everything that happens, in order and one event at a time, on
	// whatever goroutine. It must not wait for the run. nil: nobody does.
	OnEvent func(Event)
}

// Result is the result of training.
type Result struct {
	// Summary of the run; nil where it consists of phases.
	*Summary
	Phases []PhaseSummary
}

// Train trains one run, or one after the other those that a system's training
// consists of. When ctx ends, the state is saved and [train.ErrStopped] comes with
// the result.
func Train(ctx context.Context, o Options) (result *Result, err error) {
	t := &training{Options: o, ctx: ctx, stream: &stream{onEvent: o.OnEvent}, carrier: &carrier{met: o.Group}}
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
	if _, err := s.remote(); err != nil { // before anything is made or replaced
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

// dismissed lets the other ranks go where training ended without a failure.
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
	warned  []Event
	// phasesLater are those after the one that is trained, where it is the first.
	phasesLater []system.Phase
}

// from is where the configuration comes from, with further settings.
func (t *training) from(extra []config.Override) config.Sources {
	from := t.Sources
	if t.Phase != "" {
		from.Overrides = Overridden(from.Overrides, []config.Override{{Key: "phases.run", Text: t.Phase, Flag: "--phase"}})
	}
	from.Overrides, from.NeedData = Overridden(from.Overrides, extra), true
	return from
}

// load resolves the configuration with further settings.
func (t *training) load(extra []config.Override) (*Setup, error) {
	s, err := loadAs(t.ctx, t.from(extra), t.Local, false, func(e Event) {
		if !slices.Contains(t.warned, e) { // every phase loads the configuration again
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

// missing names the setting that training needs and planning does not.
func (s *Setup) missing() error {
	if s.System.Missing == nil {
		return nil
	}
	if err := s.System.Missing(s.Config); err != nil {
		return UsageError{err}
	}
	return nil
}

// dir is the run directory.
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
