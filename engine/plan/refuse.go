package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/internal/size"
)

// DoesNotFit refuses to run a plan that needs more than there is.
type DoesNotFit struct {
	Report *Report `json:"report"`
	Ladder []Rung  `json:"ladder"`
	// Smallest is the smallest change that fits, nil if no rung of the ladder does.
	Smallest *Rung `json:"smallest_change,omitempty"`
	// CardAsAsked and CardAtLeast are the cards of the table with the least memory that fit the plan as asked
	// and the last rung of the ladder; empty if none.
	CardAsAsked string `json:"card_as_asked,omitempty"`
	CardAtLeast string `json:"card_at_least,omitempty"`
	// Static is what the program keeps between updates: weights, gradient accumulators, moments.
	Static int64 `json:"static_bytes"`
	// Tried is how many settings a search tried, of which this one needs the least; 0 if there was no search.
	Tried int `json:"settings_tried,omitempty"`
}

// ExitCode is 3: does not fit.
func (*DoesNotFit) ExitCode() int { return 3 }

func (e *DoesNotFit) Error() string {
	var s strings.Builder
	r := e.Report
	if e.Tried > 0 {
		fmt.Fprintf(&s, "none of %d settings fits, the best being %v: ", e.Tried, r.Run.Settings)
	}
	if h := r.Host; r.onDevice() && h != nil {
		fmt.Fprintf(&s, "does not fit: needs %s of main memory for what training.offload keeps there, and %s (%s short)", size.Bytes(h.Total), h.has, size.Bytes(h.short()))
	} else {
		fmt.Fprintf(&s, "does not fit: needs %s%s, %s (%s short)", size.Bytes(r.required()), r.ofData(), r.Target.capacityText(), size.Bytes(r.required()-r.Capacity))
	}
	switch {
	case e.Smallest == nil && r.onDevice() && r.Host != nil:
		s.WriteString("; want less there (of the optimizer's states, adamw8bit has a quarter of adamw's), or training.offload: none")
	case e.Smallest != nil:
		host := ""
		if e.Smallest.Host > 0 {
			host = fmt.Sprintf(" and %s of main memory", size.Bytes(e.Smallest.Host))
		}
		fmt.Fprintf(&s, "; smallest change that fits: %s (needs %s%s, an update is predicted to take %s instead of %s)",
			e.Smallest.Change, size.Bytes(e.Smallest.Total), host, seconds(e.Smallest.Update), seconds(r.Time.Update))
		if others := e.others(); len(others) > 0 {
			fmt.Fprintf(&s, "; would fit too: %s", strings.Join(others, ", "))
		}
	case len(e.Ladder) > 0:
		last := e.best()
		fmt.Fprintf(&s, "; the smallest memory these settings can be brought down to is %s", size.Bytes(last.Total))
		if n := max(1, r.Parameters); e.Static > r.room() && r.room() > 0 {
			fmt.Fprintf(&s, ": weights, gradients and moments alone take %s, %.1f bytes for each of %s parameters, and %s has room for %s at most",
				size.Bytes(e.Static), float64(e.Static)/float64(n), size.Thousands(r.Parameters), r.Target.Name, size.Thousands(int64(max(0, float64(r.room())/float64(e.Static)*float64(n)))))
		}
		if e.CardAtLeast != "" {
			fmt.Fprintf(&s, "; the smallest card that holds that is %s", e.CardAtLeast)
			if e.CardAsAsked != "" && e.CardAsAsked != e.CardAtLeast {
				fmt.Fprintf(&s, ", and %s holds the plan as asked", e.CardAsAsked)
			}
		}
	}
	return s.String()
}

// ofData says how much of what the plan needs on the CPU is for data, if it is open.
func (r *Report) ofData() string {
	if r.Run.Heap == 0 || r.Target.Card != nil {
		return ""
	}
	return fmt.Sprintf(" (%s of it for its data)", size.Bytes(r.Run.heap()))
}

// others returns the changes of the model that fit, except the smallest change.
func (e *DoesNotFit) others() (changes []string) {
	for _, r := range e.Ladder {
		if r.Instead && r.Fits && r.Change != e.Smallest.Change {
			changes = append(changes, r.Change)
		}
	}
	return changes
}

// Details returns the refusal with the ladder as text.
func (e *DoesNotFit) Details() string {
	return e.Error() + "\n\nwhat each change would save and cost\n" + FormatLadder(e.Ladder)
}

// best returns the rung that needs the least.
func (e *DoesNotFit) best() Rung {
	return slices.MinFunc(e.Ladder, func(a, b Rung) int { return cmp.Compare(a.Total, b.Total) })
}

// Check plans s and returns the report; err is a *[DoesNotFit] if it does not fit.
func (p *Planner) Check(s Settings) (*Report, error) {
	d, err := p.plan(s)
	if err != nil {
		return nil, err
	}
	r := d.report
	if r.Fits {
		return r, nil
	}
	e := &DoesNotFit{Report: r, Static: d.layout.States.Bytes}
	from := r.Run.Settings
	if from.Recompute == pass.RecomputeAuto {
		// RecomputeAuto has already tried all that recomputation can do.
		from.Recompute, from.Budget = pass.RecomputeFull, 0
	}
	if e.Ladder, err = p.Ladder(from); err != nil {
		return nil, err
	}
	auto := s.Recompute == pass.RecomputeAuto
	if auto {
		e.Ladder[0].Change += ", with " + recomputeKey(s, from)
	}
	for i := range e.Ladder {
		if e.Ladder[i].Fits {
			if e.Smallest, err = p.shrink(r, e.Ladder[i]); err != nil {
				return nil, err
			}
			for _, rung := range e.Ladder { // a change alone may cost less than the rungs up to it
				if rung.Instead && rung.Settings.Offload != from.Offload && rung.Fits && rung.Update < e.Smallest.Update {
					e.Smallest = &rung
				}
			}
			if auto {
				e.Smallest, err = p.asAsked(e.Smallest, r)
			}
			if err != nil {
				return nil, err
			}
			return r, e
		}
	}
	if r.Target.Card != nil {
		e.CardAsAsked, e.CardAtLeast = smallestCard(r, r.Total), smallestCard(r, e.best().Total)
	}
	return r, e
}

// asAsked returns a change with its new figures if the planner chooses the recomputation, which the change
// does not touch: most likely less than in the plan that does not fit.
func (p *Planner) asAsked(change *Rung, asked *Report) (*Rung, error) {
	s := change.Settings
	if s.Recompute != asked.Run.Settings.Recompute || s.Slices != asked.Run.Settings.Slices {
		return change, nil
	}
	s.Recompute, s.Slices, s.Budget = pass.RecomputeAuto, 0, 0
	r, err := p.Plan(s)
	if err != nil || !r.Fits {
		return change, err
	}
	chosen := NewRung(change.Change, r.Run.Settings, r).over(asked.Total, asked.Time.Update)
	chosen.Taken, chosen.Instead = change.Taken, change.Instead
	return &chosen, nil
}

// shrink drops those changes from a rung that fits without them, most expensive first.
func (p *Planner) shrink(asked *Report, rung Rung) (*Rung, error) {
	from := asked.Run.Settings
	to := rung.Settings
	for _, undo := range []func(s Settings) Settings{
		func(s Settings) Settings {
			if s.Clip == engine.ClipPrevious {
				s.Clip = from.Clip
			}
			return s
		},
		func(s Settings) Settings { s.Compress = from.Compress; return s },
		func(s Settings) Settings { s.NarrowGradients = from.NarrowGradients; return s },
		func(s Settings) Settings { s.Clip = from.Clip; return s },
		func(s Settings) Settings { return s.without(OffloadOptimizer &^ from.Offload) },
		func(s Settings) Settings { return s.without(OffloadActivations &^ from.Offload) },
		func(s Settings) Settings {
			s.Recompute, s.Slices = from.Recompute, from.Slices
			if !s.Offload.Has(OffloadActivations) {
				s.Budget = from.Budget
			}
			return s.divided()
		},
		func(s Settings) Settings {
			s.MicroBatch, s.Accumulation = from.MicroBatch, from.Accumulation
			return s.divided()
		},
		func(s Settings) Settings { s.CEChunk = from.CEChunk; return s },
	} {
		less := undo(to)
		if less == to {
			continue
		}
		r, err := p.Plan(less)
		if err != nil {
			return nil, err
		}
		if r.Fits {
			to = less
		}
	}
	r, err := p.Plan(to)
	if err != nil {
		return nil, err
	}
	least := NewRung(difference(from, to), to, r).over(asked.Total, asked.Time.Update)
	least.Taken = true
	return &least, nil
}

// difference names the keys in which two settings differ, with their new values.
func difference(from, to Settings) string {
	var keys []string
	if from.Precision != to.Precision {
		keys = append(keys, fmt.Sprintf("training.mixed_precision: %s", to.Precision))
	}
	if from.CEChunk != to.CEChunk {
		keys = append(keys, chunkKey(from, to))
	}
	if from.MicroBatch != to.MicroBatch || max(1, from.Accumulation) != max(1, to.Accumulation) {
		keys = append(keys, batchKey(from, to))
	}
	if from.NarrowGradients != to.NarrowGradients {
		keys = append(keys, gradientsKey(from, to))
	}
	if from.Clip != to.Clip {
		keys = append(keys, clipKey(from, to))
	}
	if from.Compress != to.Compress {
		keys = append(keys, compressKey(from, to))
	}
	if from.Offload != to.Offload {
		keys = append(keys, offloadKey(from, to))
	}
	if from.Recompute != to.Recompute || from.Slices != to.Slices {
		keys = append(keys, recomputeKey(from, to))
	}
	return join(keys)
}

// contextOf returns what a plan for a card reserves for its context.
func contextOf(c *device.Card) int64 {
	bytes, _ := c.Context()
	return bytes
}

// smallestCard returns the card with the least memory that holds total bytes and computes in the plan's
// precision, or "".
func smallestCard(r *Report, total int64) string {
	best := (*device.Card)(nil)
	for _, c := range device.Cards() {
		if _, _, err := device.ChoosePrecision(r.Run.Settings.Precision, c); err != nil {
			continue
		}
		if total-contextOf(r.Target.Card)+contextOf(c) <= c.Usable && (best == nil || c.Usable < best.Usable) {
			best = c
		}
	}
	if best == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s)", best.Name, size.Bytes(best.Usable))
}
