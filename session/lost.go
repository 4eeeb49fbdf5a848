package session

import (
	"fmt"
	"path/filepath"

	"github.com/snug-ml/snug/train/checkpoint"
)

// DeviceLost is a run that ended because its device did: nothing can be computed
// there any more by this process.
type DeviceLost struct {
	Err error
	// Checkpoint is the path of the newest good one, of update Update; empty: there
	// is none. Out is what to give as --out to continue the run.
	Checkpoint string
	Update     int64
	Out        string
}

// Unwrap is what happened to the device.
func (e *DeviceLost) Unwrap() error { return e.Err }

// ExitCode is 6: the device was lost.
func (*DeviceLost) ExitCode() int { return 6 }

func (e *DeviceLost) Error() string {
	if e.Checkpoint == "" {
		return fmt.Sprintf("%v\nthe run has ended, and no checkpoint was saved: start again with `snug train --resume --out %s`", e.Err, e.Out)
	}
	return fmt.Sprintf("%v\nthe run has ended; the newest checkpoint is %s, of update %d: continue with `snug train --resume --out %s`",
		e.Err, filepath.Base(e.Checkpoint), e.Update, e.Out)
}

// lost is err as the end of the run.
func (r *run) lost(err error) error {
	e := &DeviceLost{Err: err, Out: r.asOut(r.home())}
	if c, err := checkpoint.Choose(r.home(), checkpoint.Last); err == nil {
		e.Checkpoint, e.Update = c.Path, c.Update
	}
	return e
}
