package cli

import "github.com/snug-ml/snug/engine/plan"

// announce prints what will be run: the plan in short.
func (r *run) announce() {
	rep, t := r.report, &r.config.Training
	name := r.config.System
	if r.config.Preset != "" {
		name += " / " + r.config.Preset
	}
	r.printf("%s: %s parameters", name, count(float64(rep.Parameters)))
	if rep.Trained != rep.Parameters {
		r.printf(" (%s trained)", count(float64(rep.Trained)))
	}
	r.printf(", %s on %s, %d threads (%s)\n", r.precision, r.host.CPU.String(), r.threads, r.reason)
	s := rep.Run.Settings
	r.printf("update: %d x %d sequences = %s %s, %d updates; recompute %v\n", s.Accumulation, s.MicroBatch,
		count(float64(int64(s.Effective())*r.model.UnitsPerRow)), r.model.Unit, t.MaxSteps, s.Recompute)
	r.printf("memory planned: %v before data, of which the arena %v (`snug plan` shows every part)\n", plan.Bytes(rep.Total), plan.Bytes(rep.Arena))
	if rep.Time.Tokens > 0 {
		r.printf("speed predicted: %s %s/s\n", count(rep.Time.Tokens), r.model.Unit)
	}
}

// utilization is the share of the processor's measured peak that a number of
// updates a second takes, recomputation not counted as work.
func (r *run) utilization(rate float64) float64 {
	if r.report.Speed.Peak == 0 {
		return 0
	}
	return r.report.Time.Model * rate / r.report.Speed.Peak
}
