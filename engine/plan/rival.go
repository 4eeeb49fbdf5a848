package plan

import (
	"slices"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// frameOf returns those functions of a program that the time of an update depends on. The first is that of a
// micro-batch, by its name alone, because it takes far more memory than the others.
func frameOf(p *engine.Program) *engine.Program {
	frame := &engine.Program{Outer: p.Outer, Funcs: []*engine.Func{nil}}
	for _, name := range updateFunctions {
		switch f := firstVariant(p, name); {
		case f == nil:
		case name == engine.FuncStep || name == engine.FuncMicro:
			frame.Funcs[0] = &engine.Func{Name: f.Name}
		default:
			frame.Funcs = append(frame.Funcs, f)
		}
	}
	return frame
}

// clock returns the rivals of a program's functions, with which a program that has to fit a budget is given up once
// it is slower than rival. It returns nil if rival does not fit.
func (p *Planner) clock(s Settings, rival *planned) (func(function string) *pass.Rival, error) {
	if rival == nil || !rival.report.Fits {
		return nil, nil
	}
	switch {
	case s.Recompute == pass.RecomputeAuto:
		s.Recompute, s.Budget = pass.RecomputeNone, 0
	case s.Offload.Has(OffloadActivations) && s.Budget > 0:
		s = s.without(OffloadActivations)
	default:
		return nil, nil
	}
	plain, err := p.plan(s)
	if err != nil {
		return nil, err
	}
	run := plain.report.Run
	times := float64(run.microBatches())
	return func(function string) *pass.Rival {
		if step := plain.frame.Funcs[0]; step == nil || step.Name != function {
			return nil // the time of an update does not depend on it
		}
		return &pass.Rival{
			Spare: (rival.report.Time.Update - plain.report.Time.Update) / times,
			Slower: func(f *graph.Func) float64 {
				with := *plain.frame
				with.Funcs = slices.Clone(with.Funcs)
				with.Funcs[0] = &engine.Func{Name: function, F: f}
				return (Predict(&with, plain.report.Speed, run).Update - rival.report.Time.Update) / times
			},
		}
	}, nil
}
