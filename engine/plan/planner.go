package plan

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/pass"
)

// Planner plans settings of one model for one target, each by compiling it; it
// remembers what it compiled. It is not safe for concurrent use.
type Planner struct {
	Compile Compile
	Target  Target
	// Facts completes the run of a program: tokens, workspace, staging. Nil: there
	// is nothing to add to the settings.
	Facts func(p *engine.Program, s Settings) (Run, error)
	// LeastMicroBatch is the smallest micro-batch that the model trains with; 0: 1.
	LeastMicroBatch int
	// Least is the minimum that the model needs; empty: nothing is known.
	Least Least
	// Classes is the width of the logits that the loss cuts in chunks of rows.
	Classes int

	done map[Settings]*planned
	// Compiled counts the programs made.
	Compiled int
}

type planned struct {
	program *engine.Program
	report  *Report
}

// Plan is the report of settings. [pass.RecomputeAuto] without a budget gets
// what the target leaves for temporaries; the report's settings say how much
// that was.
func (p *Planner) Plan(s Settings) (*Report, error) {
	d, err := p.plan(s)
	if err != nil {
		return nil, err
	}
	return d.report, nil
}

// Program is the program of settings.
func (p *Planner) Program(s Settings) (*engine.Program, error) {
	d, err := p.plan(s)
	if err != nil {
		return nil, err
	}
	return d.program, nil
}

func (p *Planner) plan(s Settings) (*planned, error) {
	s.Accumulation = max(1, s.Accumulation)
	if d := p.done[s]; d != nil {
		return d, nil
	}
	if err := p.Least.Check(s, p.Target, p.LeastMicroBatch); err != nil {
		return nil, err
	}
	d, err := p.make(s)
	if err != nil {
		return nil, err
	}
	if p.done == nil {
		p.done = map[Settings]*planned{}
	}
	p.done[s] = d
	p.done[d.report.Run.Settings] = d
	return d, nil
}

func (p *Planner) make(s Settings) (*planned, error) {
	if s.Recompute == pass.RecomputeAuto && s.Budget == 0 {
		return p.auto(s)
	}
	program, err := p.Compile(s)
	if err != nil {
		return nil, fmt.Errorf("planning %v: %w", s, err)
	}
	p.Compiled++
	r := Run{Settings: s}
	if p.Facts != nil {
		if r, err = p.Facts(program, s); err != nil {
			return nil, fmt.Errorf("planning %v: %w", s, err)
		}
		r.Settings = s
	}
	return &planned{program, New(program, p.Target, r)}, nil
}

// auto finds the least recomputation that fits. The budget is what the same
// program without recomputation leaves for temporaries; if packing needs more
// than the sum of what is live, it is lowered by that much. When no budget does,
// the answer is the full recomputation of every block.
func (p *Planner) auto(s Settings) (*planned, error) {
	plain := s
	plain.Recompute = pass.RecomputeNone
	d, err := p.plan(plain)
	if err != nil || d.report.Fits {
		return d, err
	}
	s.Budget = d.report.Capacity - (d.report.Total - d.program.Layout.Temps.Bytes)
	for range 3 {
		if s.Budget <= 0 {
			break
		}
		if d, err = p.plan(s); err != nil || d.report.Fits {
			return d, err
		}
		if !slices.ContainsFunc(d.report.Blocks, func(b Block) bool { return b.Block > 0 && b.Recompute < pass.RecomputeFull }) {
			return d, nil
		}
		s.Budget -= d.report.Total - d.report.Capacity
	}
	s.Recompute, s.Budget = pass.RecomputeFull, 0
	return p.plan(s)
}
