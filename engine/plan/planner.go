package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Planner plans settings of one model for one target by compiling them. It remembers all reports, and the
// latest programs. It is not safe for concurrent use.
type Planner struct {
	// Compile compiles the program for settings. If rival is not nil, it may give up with [pass.ErrSlower] if the
	// program could only lose against what each function competes with.
	Compile func(s Settings, rival func(function string) *pass.Rival) (*engine.Program, error)
	Target  Target
	// Facts completes the Run of a program: tokens, workspace, staging. If it is nil, the settings are all
	// there is.
	Facts func(p *engine.Program, s Settings) (Run, error)
	// LeastMicroBatch is the smallest micro-batch that the model can be trained with; 0 means 1.
	LeastMicroBatch int
	// Least is the minimum that the model needs; empty if unknown.
	Least Least
	// Offload is what may be kept in main memory. AutoOffload lets the planner decide what is, if
	// [pass.RecomputeAuto] without offloading does not fit or is slower.
	Offload     Offload
	AutoOffload bool
	// FullGradients says that gradients cannot be kept in 16 bits.
	FullGradients bool
	// Clips says that gradients are clipped by their norm.
	Clips bool
	// Classes is the width of the logits that the loss splits into chunks of rows.
	Classes int

	done   map[Settings]*planned
	lost   map[Settings]float64 // settings that were given up, with the update time that they exceed, in seconds
	recent []*planned           // plans that still have their programs
	// Compiled counts the programs compiled.
	Compiled int
}

// keptPrograms is how many programs a planner keeps, because each takes more memory than all reports.
const keptPrograms = 3

type planned struct {
	program *engine.Program // nil if it was dropped
	report  *Report
	layout  engine.Layout // without the places of tensors
	frame   *engine.Program
}

// Plan returns the report of settings. [pass.RecomputeAuto] and [OffloadActivations] without a budget get
// what the target leaves for temporaries; the settings in the report contain that budget.
func (p *Planner) Plan(s Settings) (*Report, error) {
	d, err := p.plan(s)
	if err != nil {
		return nil, err
	}
	return d.report, nil
}

// Program returns the program of settings.
func (p *Planner) Program(s Settings) (*engine.Program, error) {
	d, err := p.plan(s)
	if err != nil {
		return nil, err
	}
	if d.program != nil {
		return d.program, nil
	}
	if d.program, err = p.compile(d.report.Run.Settings, nil); err == nil {
		p.keep(d)
	}
	return d.program, err
}

func (p *Planner) compile(s Settings, rival func(function string) *pass.Rival) (*engine.Program, error) {
	program, err := p.Compile(s, rival)
	if err != nil {
		return nil, fmt.Errorf("planning %v: %w", s, err)
	}
	p.Compiled++
	return program, nil
}

// keep keeps the program of d, replacing an older one: if possible one that does not fit.
func (p *Planner) keep(d *planned) {
	p.recent = append(p.recent, d)
	if last := len(p.recent) - 1; last == keptPrograms {
		i := max(0, slices.IndexFunc(p.recent[:last], func(d *planned) bool { return !d.report.Fits }))
		p.recent[i].program = nil
		p.recent = slices.Delete(p.recent, i, i+1)
	}
}

func (p *Planner) plan(s Settings) (*planned, error) { return p.against(s, nil) }

// against plans settings. It may return nil if they are slower than rival, which may be nil, and that fits.
func (p *Planner) against(s Settings, rival *planned) (*planned, error) {
	s.Accumulation = max(1, s.Accumulation)
	if s.Recompute != pass.RecomputeSlices {
		s.Slices = 0
	}
	if d := p.done[s]; d != nil {
		return d, nil
	}
	if least, ok := p.lost[s]; ok && rival.beats(least) {
		return nil, nil
	}
	if err := p.Least.Check(s, p.Target, p.LeastMicroBatch); err != nil {
		return nil, err
	}
	d, err := p.make(s, rival)
	if err != nil {
		return nil, err
	}
	if p.done == nil {
		p.done, p.lost = map[Settings]*planned{}, map[Settings]float64{}
	}
	if d == nil {
		p.lost[s] = rival.report.Time.Update
		return nil, nil
	}
	p.done[s] = d
	p.done[d.report.Run.Settings] = d
	return d, nil
}

func (p *Planner) make(s Settings, rival *planned) (*planned, error) {
	switch {
	case !p.Offload.Has(s.Offload):
		return nil, fmt.Errorf("planning %v: training.offload: %v is not possible here", s, s.Offload)
	case s.Recompute == pass.RecomputeAuto && s.Budget == 0:
		return p.auto(s, rival)
	case s.Recompute == pass.RecomputeSlices && s.Slices == 0:
		return p.slices(s)
	case s.Offload.Has(OffloadActivations) && s.Budget == 0:
		return p.away(s, nil)
	case s.Recompute == pass.RecomputeSlices && s.MicroBatch%s.Slices != 0:
		return nil, graph.SettingError{
			Key:     "training.checkpoint_slices",
			Problem: fmt.Sprintf("%d parts do not divide a micro-batch of %d: want one of %v", s.Slices, s.MicroBatch, divisors(s.MicroBatch, 2, min(s.MicroBatch, MostSlices))),
		}
	}
	clock, err := p.clock(s, rival)
	if err != nil {
		return nil, err
	}
	program, err := p.compile(s, clock)
	if errors.Is(err, pass.ErrSlower) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := Run{Settings: s}
	if p.Facts != nil {
		if r, err = p.Facts(program, s); err != nil {
			return nil, fmt.Errorf("planning %v: %w", s, err)
		}
		r.Settings = s
	}
	d := &planned{program, New(program, p.Target, r), program.Layout, frameOf(program)}
	d.layout.State, d.layout.Input, d.layout.Output = nil, nil, nil
	p.keep(d)
	return d, nil
}

// room returns what the target leaves for temporaries.
func (d *planned) room() int64 {
	return d.report.Capacity - (d.report.Total - d.layout.Temps.Bytes)
}

// recomputed finds the least recomputation that fits. The budget is what the same program without
// recomputation leaves for temporaries, lowered as needed if packing needs more than the sum of what is live.
// If no budget fits, one recipe for all blocks is tried, and finally slices. If nothing fits, it returns the
// most slices, or full recomputation of every block if slices save nothing. It returns nil if what fits is slower
// than rival, which fits.
func (p *Planner) recomputed(s Settings, rival *planned) (*planned, error) {
	if s.Offload.Has(OffloadActivations) {
		return p.recomputedAway(s, rival)
	}
	plain := s
	plain.Recompute = pass.RecomputeNone
	d, err := p.plan(plain)
	if err != nil || d.report.Fits {
		return d, err
	}
	room := d.room()
	s.Budget = room
	for range 3 {
		if s.Budget <= 0 {
			break
		}
		if d, err = p.against(s, rival); err != nil || d == nil || d.report.Fits {
			return d, err
		}
		if !slices.ContainsFunc(d.report.Blocks, func(b Block) bool { return b.Block > 0 && b.Recompute < pass.RecomputeFull }) {
			break
		}
		s.Budget -= d.report.Total - d.report.Capacity
	}
	s.Recompute, s.Budget = pass.RecomputeFull, 0
	full, err := p.plan(s)
	parts := leastFactor(s.MicroBatch)
	if err != nil || full.report.Fits || room <= 0 || parts == 1 || parts > MostSlices {
		return full, err
	}
	s.Recompute, s.Slices = pass.RecomputeSlices, parts
	few, err := p.plan(s)
	if err != nil || few.report.Total >= full.report.Total {
		return full, err // more slices save nothing more
	}
	for _, s.Recompute = range []pass.Recompute{pass.RecomputeActivation, pass.RecomputeSelective, pass.RecomputeWide} {
		if d, err = p.plan(s); err != nil || d.report.Fits {
			return d, err
		}
	}
	if few.report.Fits {
		return few, nil
	}
	s.Recompute, s.Slices = pass.RecomputeSlices, 0
	return p.plan(s)
}

// elementwise returns plain, which recomputes nothing and fits, or the same with elementwise results computed again
// where they are read: loops that do that need not read them, nor anybody write them. What is not 1 % faster is not
// worth naming.
func (p *Planner) elementwise(plain *planned) (*planned, error) {
	s := plain.report.Run.Settings
	s.Recompute = pass.RecomputeActivation
	again, err := p.plan(s)
	if err != nil || again.report.Time.Update > .99*plain.report.Time.Update {
		return plain, err
	}
	return again, nil
}

// MostSlices limits the parts of a micro-batch, because the program and its compile time grow with every
// part.
const MostSlices = 256

// mostSlices returns the largest number of parts that a micro-batch can be divided into.
func mostSlices(microBatch int) int {
	d := divisors(microBatch, 1, MostSlices)
	return d[len(d)-1]
}

// slices divides the micro-batch into as few parts as fit, or as many as possible if nothing fits.
func (p *Planner) slices(s Settings) (*planned, error) {
	s.Slices = mostSlices(s.MicroBatch)
	parts := divisors(s.MicroBatch, min(2, s.Slices), s.Slices)
	best, err := p.plan(s)
	if err != nil || !best.report.Fits {
		return best, err
	}
	lo, hi := 0, len(parts)-1 // hi fits; everything before lo does not
	for lo < hi {
		mid := (lo + hi) / 2
		s.Slices = parts[mid]
		d, err := p.plan(s)
		if err != nil {
			return nil, err
		}
		if d.report.Fits {
			best, hi = d, mid
		} else {
			lo = mid + 1
		}
	}
	return best, nil
}
