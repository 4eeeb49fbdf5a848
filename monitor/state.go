package monitor

import (
	"fmt"
	"time"

	"github.com/snug-ml/snug/train/rundir"
)

// State is what a run is doing, judging by its folder.
type State string

// The states.
const (
	Empty    State = "empty"    // a folder without a line of a run
	Starting State = "starting" // before the first update
	Running  State = "running"  // training; see also Snapshot.Doing
	Stuck    State = "stuck"    // its process is alive, but no update came for StuckAfter
	Silent   State = "silent"   // nothing was written for SilentAfter
	Died     State = "died"     // its process is gone, or nothing was written for DiedAfter
	Done     State = "done"     // after its last update
	Stopped  State = "stopped"  // its state saved, to be resumed
	Failed   State = "failed"   // with an error
	Gone     State = "gone"     // the folder was moved or removed
)

// How long nothing must be written for a state. A run that samples its machine writes
// once a second; one that does not writes with its updates.
const (
	SilentAfter = 60 * time.Second
	DiedAfter   = 600 * time.Second
	StuckAfter  = 600 * time.Second
	// LostAfter is how long a run whose process is not found must have written nothing. A
	// process in a container has a different ID inside, and goes on writing.
	LostAfter = 3 * time.Second
)

// Over reports whether a run in this state has ended, whatever the reason.
func (s State) Over() bool { return s == Died || s == Done || s == Stopped || s == Failed }

// seen returns when the run gave its last sign of life, and updated when its last update
// came; zero: never.
func (r *Run) seen() (seen, updated time.Time) {
	later := func(t *time.Time, x time.Time) {
		if x.After(*t) {
			*t = x
		}
	}
	if n := len(r.curve.rows); n > 0 {
		if updated = at(r.curve.rows[n-1].time); updated.IsZero() {
			updated = r.metrics.changed() // of an earlier version
		}
	}
	if n := len(r.machine); n > 0 {
		last := &r.machine[n-1]
		later(&seen, at(last.Time))
		// Updates between two lines of the log show only in samples.
		if i := r.firstAt(last.Update); last.Update > 0 && (i > 0 || updated.IsZero()) {
			later(&updated, at(r.machine[i].begin()))
		}
	}
	if n := len(r.curve.evals); n > 0 {
		later(&seen, at(r.curve.evals[n-1].Time))
	}
	if n := len(r.lines); n > 0 {
		later(&seen, at(r.lines[n-1].Time))
	}
	if r.about != nil {
		later(&seen, r.about.At)
	}
	later(&seen, updated)
	return seen, updated
}

// isLost reports whether the process of a run without an end is no longer on this
// machine.
func (r *Run) isLost() bool {
	if r.about == nil || r.about.End != nil || r.about.Host == "" || r.about.PID <= 0 || rundir.MayRun(r.about.PID, r.about.Host) {
		return false
	}
	seen, _ := r.seen()
	return time.Since(seen) >= LostAfter
}

// firstAt returns the index of the first of the last samples with the same update.
func (r *Run) firstAt(update int64) int {
	i := len(r.machine) - 1
	for i > 0 && r.machine[i-1].Update == update {
		i--
	}
	return i
}

// state returns what the run is doing at a time, and the reason.
func (r *Run) state(now time.Time) (State, string) {
	switch {
	case r.gone != nil:
		return Gone, Printable(r.gone.Error())
	case r.about != nil && r.about.End != nil:
		switch e := r.about.End; e.State {
		case Done, Stopped, Failed:
			return e.State, e.Text
		}
	case r.about == nil && r.result != nil && r.result.Updates >= r.lastUpdate():
		if r.result.Done {
			return Done, ""
		}
		return Stopped, ""
	case r.empty():
		return Empty, ""
	}
	seen, updated := r.seen()
	beats := len(r.machine) > 0
	silent, died := SilentAfter, DiedAfter
	if !beats {
		silent = died
		if gap := r.longestGap(); 3*gap > died {
			silent, died = 3*gap, 3*gap // it writes rarely
		}
	}
	quiet := now.Sub(seen) // negative where the clock of another machine is ahead
	switch {
	case r.lost && quiet >= LostAfter:
		return Died, fmt.Sprintf("process %d is gone, and did not say why", r.about.PID)
	case quiet >= died && !updated.IsZero():
		return Died, fmt.Sprintf("no update for %s", whole1(now.Sub(updated)))
	case quiet >= died:
		return Died, fmt.Sprintf("no sign of life for %s, before the first update", whole1(quiet))
	case quiet >= silent:
		return Silent, fmt.Sprintf("nothing was written for %s: it died, was suspended, or its disk is full", whole1(quiet))
	case r.lastUpdate() == r.from() && (updated.IsZero() || r.about != nil && !updated.After(r.about.At)):
		return Starting, ""
	}
	if wait := now.Sub(updated); wait >= StuckAfter && r.doing() != Evaluating && r.doing() != Finishing && beats {
		return Stuck, fmt.Sprintf("no update for %s", whole1(wait))
	}
	return Running, ""
}

// whole1 prints a time in whole seconds, a long one in whole hours or days.
func whole1(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%.0f days", d.Hours()/24)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%.0f h", d.Hours())
	}
	return fmt.Sprintf("%.0f s", max(0, d.Seconds()))
}

// longestGap is the longest time between the last lines of updates.
func (r *Run) longestGap() (gap time.Duration) {
	rows := r.curve.rows
	for i := max(1, len(rows)-20); i < len(rows); i++ {
		gap = max(gap, time.Duration((rows[i].time-rows[i-1].time)*float64(time.Second)))
	}
	return gap
}

// from returns how many updates earlier sessions made.
func (r *Run) from() int64 {
	if r.about == nil {
		return 0
	}
	return r.about.From
}

// lastUpdate returns how many updates are known to be done.
func (r *Run) lastUpdate() (update int64) {
	if n := len(r.curve.rows); n > 0 {
		update = r.curve.rows[n-1].update
	}
	if n := len(r.machine); n > 0 && (r.about == nil || r.machine[n-1].Time >= seconds(r.about.At)) {
		update = max(update, r.machine[n-1].Update)
	}
	return max(update, r.from())
}

// doing returns what the run does other than training.
func (r *Run) doing() Doing {
	if n := len(r.machine); n > 0 {
		return r.machine[n-1].Doing
	}
	return Training
}
