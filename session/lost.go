package session

import (
	"fmt"
	"path/filepath"

	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/train/checkpoint"
)

// DeviceLost says that a run ended because its device was lost: this process can no longer compute there.
type DeviceLost struct {
	Err error
	// Checkpoint is the path of the newest intact checkpoint, saved after Update; empty if there is none. Out
	// is the value of --out that continues the run.
	Checkpoint string
	Update     int64
	Out        string
	// Replayed is the result of computing the updates since that checkpoint again; empty if that was not
	// done.
	Replayed string
}

// Unwrap returns what happened to the device.
func (e *DeviceLost) Unwrap() error { return e.Err }

// ExitCode is 6: the device was lost.
func (*DeviceLost) ExitCode() int { return 6 }

func (e *DeviceLost) Error() string {
	text := e.Err.Error()
	if e.Replayed != "" {
		text += "\n" + e.Replayed
	}
	if e.Checkpoint == "" {
		return fmt.Sprintf("%s\nthe run has ended, and no checkpoint was saved: start again with `snug train --resume --out %s`", text, shell.Path(e.Out))
	}
	return fmt.Sprintf("%s\nthe run has ended; the newest checkpoint is %s, of update %d: continue with `snug train --resume --out %s`",
		text, filepath.Base(e.Checkpoint), e.Update, shell.Path(e.Out))
}

// lost wraps err as the end of the run.
func (r *run) lost(err error) error {
	e := &DeviceLost{Err: err, Out: r.asOut(r.home())}
	if c, err := checkpoint.Choose(r.home(), checkpoint.Last); err == nil {
		e.Checkpoint, e.Update = c.Path, c.Update
	}
	e.Replayed = r.replayed()
	return e
}

// replayed finds out what the card fails at. It does so in another process, because this one can no longer
// use the card, and after its memory on the card is free.
func (r *run) replayed() string {
	if r.Replay == nil || r.telemetry == nil || r.ctx.Err() != nil { // or the run never began
		return ""
	}
	update := r.lastUpdate + 1
	again := fmt.Sprintf("`snug check %s --faults --update %d`", shell.Path(r.home()), update)
	if r.Group != nil {
		return again + " computes the updates since the newest checkpoint again, one operation at a time, and names the one that fails"
	}
	if update > int64(r.Config.Training.MaxSteps) {
		return "all updates were done"
	}
	r.infof("looking for what the card fails at: computing the updates since the newest checkpoint again, one operation at a time, in another process")
	on := backend.Device(r.Backend)
	err := backend.Release(r.Backend)
	var found *Replayed
	if err == nil {
		found, err = r.Replay(r.ctx, r.home(), update, on)
	}
	if err != nil {
		return fmt.Sprintf("what the card fails at was not found: %v\n%s tries again", err, again)
	}
	return found.String()
}
