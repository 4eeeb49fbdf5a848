package train

import (
	"fmt"
	"time"
)

// Event is something that happens during a run: a Step, Evaluating, Evaluated,
// Warned or Ended, or the checkpoint.Event of a save that is skipped.
type Event any

// Step is an optimizer update.
type Step struct {
	Update   int64 // updates done, this one included
	Total    int64
	Loss     float64 // mean over the update, by weight
	LR       float64
	GradNorm float64 // before clipping
	// Scale is the current loss scale (0 without scaling); Skipped means that the update
	// was not applied because of a non-finite gradient.
	Scale   float64
	Skipped bool
	Tokens  int64 // all tokens so far
	// NewTokens and Took cover this update only; Wait is the part of Took spent waiting
	// for data. Waiting for a save is counted in Save instead.
	NewTokens  int64
	Took, Wait time.Duration
	// Exchange is the part of Took spent waiting for gradients to be added up with the
	// other ranks. Hidden is the rest of the time for that, overlapped with this rank's
	// computation.
	Exchange, Hidden time.Duration
	// Save is the time that the run waited for checkpoints: between the previous update
	// and this one, and within this one before it changed what was not yet written or
	// staged.
	Save time.Duration
	// Variants are the compiled shapes of its micro-batches, nil if there is only one.
	Variants []string
	// FLOPs are those of the update's matmuls, as a session reports them: 0 from a [Job].
	FLOPs float64
	// LossZ and NormZ are z-scores against the last 128 updates.
	LossZ, NormZ float64
	// Log means that the update is due for a log line.
	Log bool
}

// Notice returns a line about an update that is out of the ordinary, empty for any other.
func (s Step) Notice() string {
	switch {
	case s.Skipped:
		return fmt.Sprintf("update %d skipped: a gradient is not finite; loss scale now %g", s.Update, s.Scale)
	case max(s.LossZ, s.NormZ) > SpikeZ:
		return fmt.Sprintf("update %d: spike: loss %.4f (z %.1f), gradient norm %.3g (z %.1f)", s.Update, s.Loss, s.LossZ, s.GradNorm, s.NormZ)
	}
	return ""
}

// Evaluating comes before an evaluation on held-out data.
type Evaluating struct{ Update int64 }

// Evaluated is an evaluation on held-out data.
type Evaluated struct {
	Update  int64
	Metrics map[string]float64
	Monitor Metric
	Best    bool
	Took    time.Duration
}

// Warned is something that the user should know.
type Warned struct {
	Update int64
	Text   string
}

// Ended is the warning that a run ends with.
type Ended struct{ Warning *Warning }
