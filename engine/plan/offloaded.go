package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/pass"
)

// Offload is what a program keeps in the host's memory instead of the device's.
type Offload uint8

// What can be offloaded.
const (
	OffloadOptimizer   Offload = 1 << iota // the states of the optimizer
	OffloadActivations                     // activations until the backward half reads them, as few as make the program fit
	OffloadNothing     Offload = 0
	OffloadAll                 = OffloadOptimizer | OffloadActivations
)

var offloadNames = map[Offload]string{OffloadNothing: "none", OffloadOptimizer: "optimizer", OffloadActivations: "activations", OffloadAll: "all"}

func (o Offload) String() string { return offloadNames[o] }

// MarshalText returns the name.
func (o Offload) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText parses the name.
func (o *Offload) UnmarshalText(name []byte) error {
	x, ok := ParseOffload(string(name))
	if !ok {
		return fmt.Errorf("offload is %q, want none, optimizer, activations or all", name)
	}
	*o = x
	return nil
}

// ParseOffload parses training.offload. It returns false for a name that is no Offload, such as auto.
func ParseOffload(name string) (Offload, bool) {
	for o, n := range offloadNames {
		if n == name {
			return o, true
		}
	}
	return OffloadNothing, false
}

// Has reports whether all of w is in the host's memory.
func (o Offload) Has(w Offload) bool { return o&w == w }

// choices returns what the planner may keep in main memory in addition to from, least first.
func (p *Planner) choices(from Offload) (list []Offload) {
	for o := from + 1; o <= OffloadAll; o++ {
		if o.Has(from) && p.Offload.Has(o) {
			list = append(list, o)
		}
	}
	return list
}

// auto returns the fastest plan that fits: the one with the least recomputation and everything on the card,
// that with elementwise results computed again or, if the planner may decide that, one that uses main memory.
// It returns nil if what fits is slower than rival, which fits.
func (p *Planner) auto(s Settings, rival *planned) (best *planned, err error) {
	if !s.Offload.Has(OffloadActivations) {
		plain := s
		plain.Recompute = pass.RecomputeNone
		d, err := p.plan(plain)
		if err != nil {
			return nil, err
		}
		if d.report.Fits {
			return p.elementwise(d)
		}
		if rival.outruns(d) {
			return nil, nil
		}
	}
	var options []Offload
	if p.AutoOffload {
		options = p.choices(s.Offload)
	}
	limit, err := p.limit(s, options, rival)
	if err != nil {
		return nil, err
	}
	if best, err = p.recomputed(s, limit); err != nil {
		return nil, err
	}
	for _, s.Offload = range options {
		d, err := p.option(s, limit, best)
		if err != nil {
			return nil, err
		}
		best = best.or(d)
	}
	if limit != rival && (best == nil || !best.report.Fits) {
		best = limit
	}
	if rival != nil && rival.report.Fits && (best == nil || !best.report.Fits || rival.outruns(best)) {
		return nil, nil
	}
	return best, nil
}

// limit returns a plan that fits, so that [Planner.auto] need not look for slower ones: rival or, if there is none,
// full recomputation, which takes one plan instead of many; or, if it is faster, the best plan with activations in
// main memory.
func (p *Planner) limit(s Settings, options []Offload, rival *planned) (*planned, error) {
	with := s.with(s.Offload | OffloadActivations)
	if !slices.Contains(options, with.Offload) {
		return rival, nil
	}
	limit := rival
	if limit == nil || !limit.report.Fits {
		s.Recompute = pass.RecomputeFull
		var err error
		if limit, err = p.plan(s); err != nil || !limit.report.Fits {
			return rival, err
		}
	}
	away, err := p.recomputedAway(with, limit)
	return limit.or(away), err
}

// option returns the fastest plan with other data in main memory, nil if that is slower than limit or not faster
// than best.
func (p *Planner) option(s Settings, limit, best *planned) (*planned, error) {
	plain := s
	plain.Recompute = pass.RecomputeNone
	plain.Offload &^= OffloadActivations
	if d, err := p.plan(plain); err != nil || limit.outruns(d) {
		return nil, err
	}
	if lost, err := p.beaten(s, best); err != nil || lost {
		return nil, err
	}
	return p.recomputed(s, limit.or(best))
}

// or returns e if it fits and d does not, if both fit and it is faster, if neither fits and it needs less, or if
// d is nil; otherwise d. Either may be nil.
func (d *planned) or(e *planned) *planned {
	if d == nil || e == nil {
		return cmp.Or(d, e)
	}
	switch a, b := d.report, e.report; {
	case a.Fits != b.Fits:
		if b.Fits {
			return e
		}
	case a.Fits && faster(b, a), !a.Fits && b.Total < a.Total:
		return e
	}
	return d
}

// beats reports whether d fits and takes an update of no more than the given seconds. d may be nil.
func (d *planned) beats(seconds float64) bool {
	return d != nil && d.report.Fits && d.report.Time.Update <= seconds
}

// outruns reports whether d fits and e, whether it fits or not, is slower. d may be nil.
func (d *planned) outruns(e *planned) bool {
	return d != nil && d.report.Fits && d.report.Time.Update < e.report.Time.Update
}

// beaten reports whether nothing that s may turn into is faster than best: neither recomputation nor activations
// in main memory make an update faster.
func (p *Planner) beaten(s Settings, best *planned) (bool, error) {
	if best == nil || !best.report.Fits {
		return false, nil
	}
	if s.Recompute == pass.RecomputeAuto {
		s.Recompute = pass.RecomputeNone
	}
	s.Offload &^= OffloadActivations
	d, err := p.plan(s)
	return err == nil && best.beats(d.report.Time.Update), err
}

// little is the share of an update that may be spent waiting for copies before more recomputation is tried
// instead.
const little = 0.005

// recomputedAway returns the fastest plan that fits of all recipes with activations in main memory. More
// recomputation needs fewer of them there. It does not search for plans that are slower than rival, if that fits, and
// returns nil if there are no others.
func (p *Planner) recomputedAway(s Settings, rival *planned) (best *planned, err error) {
	fastest := rival
	for r := pass.RecomputeNone; r <= pass.RecomputeFull; r++ {
		s.Recompute = r
		if lost, err := p.beaten(s, fastest); err != nil {
			return nil, err
		} else if lost {
			break // recomputing even more is not faster
		}
		d, err := p.away(s, fastest)
		if err != nil {
			return nil, err
		}
		if d == nil {
			continue
		}
		if d.room() <= 0 {
			return d, nil // what is kept between updates alone does not fit
		}
		best, fastest = best.or(d), fastest.or(d)
		if t := best.report.Time; best.report.Fits && t.Exposed < little*t.Update {
			break // recomputing even more is slower
		}
	}
	if s.Recompute = pass.RecomputeSlices; !fastest.report.Fits && s.MicroBatch > 1 {
		d, err := p.plan(s)
		if err != nil {
			return nil, err
		}
		best = best.or(d)
	}
	return best, nil
}

// away keeps as few activations in main memory as make the program fit, or none if it fits without. It gives up,
// with nil or a plan that does not fit, once that is slower than rival and rival fits.
func (p *Planner) away(s Settings, rival *planned) (*planned, error) {
	here := s
	here.Offload &^= OffloadActivations
	d, err := p.plan(here)
	if err != nil {
		return nil, err
	}
	s.Budget = d.layout.Temps.Bytes
	if d.report.onDevice() {
		return p.plan(s)
	}
	room := d.room()
	s.Budget = room
	for range 8 {
		if s.Budget <= allAway {
			break
		}
		last := d.report.Total
		if d, err = p.against(s, rival); err != nil || d == nil || d.report.onDevice() || d.report.Total == last || rival.beats(d.report.Time.Update) {
			return d, err // further activations there take further time
		}
		// Packing needs more than the sum of what is live, by an amount that changes with each schedule.
		s.Budget -= max(d.report.Total-d.report.Capacity, room/32)
	}
	s.Budget = allAway
	all, err := p.against(s, rival)
	if err != nil {
		return nil, err
	}
	return d.or(all), nil
}

// allAway is a budget that no program meets, so that all possible activations go to main memory.
const allAway = 1
