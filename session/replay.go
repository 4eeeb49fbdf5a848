package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// Replayed is the result of [Check.Replay].
type Replayed struct {
	From   string `json:"from"` // a checkpoint, or "the first weights"
	Device string `json:"device"`
	Card   bool   `json:"card,omitempty"` // whether the device is a card
	// First and Last are the updates to compute. Failed is the one that failed; 0 if none did, or if the
	// program could not be loaded.
	First  int64 `json:"first"`
	Last   int64 `json:"last"`
	Failed int64 `json:"failed,omitempty"`
	// Fault describes the operation, its shapes, the kernel and the driver's message; empty if there was
	// none.
	Fault string `json:"fault,omitempty"`
}

func (r *Replayed) String() string {
	updates := fmt.Sprintf("update %d", r.Last)
	if r.First < r.Last {
		updates = fmt.Sprintf("updates %d to %d", r.First, r.Last)
	}
	text := fmt.Sprintf("computed again from %s, one operation at a time, %s", r.From, updates)
	switch {
	case r.Fault == "" && !r.Card:
		return text + " succeeded: no operation fails"
	case r.Fault == "":
		return text + " succeeded: no kernel fails each time, so suspect the card, its memory or its power"
	case r.Failed == 0:
		return text + " could not begin: " + r.Fault
	case r.First < r.Last:
		text += fmt.Sprintf(" failed in update %d", r.Failed)
	default:
		text += " failed"
	}
	return text + ", at " + r.Fault
}

// Replay computes the updates of a run from its newest checkpoint to Update again, as the run did, but one
// operation at a time and waiting for each, because only then does the card's error point to the operation.
// It does not change the run.
func (c *Check) Replay(ctx context.Context) (report *Replayed, err error) {
	if c.Dir == "" {
		return nil, usage("--faults computes the updates of a run again: want a run directory, not a preset or a configuration")
	}
	s, err := c.open(ctx, nil)
	if err != nil {
		return nil, err
	}
	if last := int64(s.Config.Training.MaxSteps); c.Update > last {
		return nil, usage("--update %d: the run has %d (training.max_steps)", c.Update, last)
	}
	from, err := c.before(c.Dir)
	if err != nil {
		return nil, err
	}
	report = &Replayed{From: "the first weights", Device: s.Backend.Name(), Card: s.Card != nil, First: 1, Last: c.Update}
	if from != nil {
		defer func() { err = errors.Join(err, from.Close()) }()
		report.From, report.First = filepath.Base(from.Path), from.State.Update+1
		_, s.slices = slicesOf(from.Manifest.Arithmetic)
	}
	if err = c.replay(ctx, s, from, report); backend.Lost(err) {
		if report.Fault = backend.Fault(err); report.Fault == "" {
			report.Fault = err.Error()
		}
		return report, nil
	}
	return report, err
}

func (c *Check) replay(ctx context.Context, s *Setup, from *checkpoint.Checkpoint, report *Replayed) (err error) {
	target, err := s.Target()
	if err != nil {
		return err
	}
	_, program, err := s.Fit(target, s.Precision)
	if err != nil {
		return err
	}
	home, err := rundir.Look(c.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	data, err := s.Data(ctx, system.Env{Dir: home, Cache: s.Cache(c.Dir), Position: position(from), Log: silent})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, CloseData(data)) }()
	if err := s.computeAs(from); err != nil {
		return err
	}
	runner, err := s.Load(program, data)
	if err != nil {
		return err
	}
	defer func() {
		if e := runner.Close(); !backend.Lost(err) { // nothing can be freed on a lost device
			err = errors.Join(err, e)
		}
	}()
	job := s.job(data, runner)
	job.Updates, job.Eval = c.Update, train.EvalOptions{}
	start := int64(0)
	if from != nil {
		if start, err = job.Resume(from); err != nil {
			return err
		}
	}
	report.Failed = start + 1
	job.OnEvent = func(e train.Event) {
		if step, ok := e.(train.Step); ok {
			report.Failed = step.Update + 1
			if c.OnEvent != nil {
				c.OnEvent(Info{fmt.Sprintf("update %d of %s computed", step.Update, size.Of(c.Update, "update"))})
			}
		}
	}
	runner.Observe(&engine.Observer{Narrow: true})
	if _, err = job.Run(ctx, start); err == nil {
		report.Failed = 0
	}
	return err
}
