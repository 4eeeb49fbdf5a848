package cli

import (
	"slices"

	"github.com/snug-ml/snug/internal/size"
)

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
	r.printf(", %s on %s, %d threads (%s)\n", r.precision, r.computer(), r.threads, r.reason)
	s := rep.Run.Settings
	r.printf("update: %d x %d sequences = %s %s, %d updates; recompute %v\n", s.Accumulation, s.MicroBatch,
		count(float64(int64(s.Effective())*r.model.UnitsPerRow)), r.model.Unit, t.MaxSteps, s.Recompute)
	r.printf("memory planned: %v before data, of which the arena %v (`snug plan` shows every part)\n", size.Bytes(rep.Total), size.Bytes(rep.Arena))
	_, rates := r.schedule().Preview(40)
	r.printf("learning rate: %s  peak %.3g, last %.3g\n", sparkline(rates), slices.Max(rates), rates[len(rates)-1])
	if rep.Time.Tokens > 0 {
		r.printf("speed predicted: %s %s/s\n", count(rep.Time.Tokens), r.model.Unit)
	}
}

// sparkline draws values from 0 to their largest as one line of blocks.
func sparkline(x []float64) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	top := slices.Max(x)
	line := make([]rune, len(x))
	for i, v := range x {
		line[i] = blocks[0]
		if top > 0 {
			line[i] = blocks[min(int(v/top*float64(len(blocks))), len(blocks)-1)]
		}
	}
	return string(line)
}
