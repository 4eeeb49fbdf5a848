package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/session"
)

// announce prints what will be run: a summary of the plan.
func (a *app) announce(r session.Planned) {
	rep, t := r.Report, &r.Config.Training
	name := r.Config.System
	if r.Config.Preset != "" {
		name += " / " + r.Config.Preset
	}
	a.printf("%s: %s parameters", name, size.Count(float64(rep.Parameters)))
	if rep.Trained != rep.Parameters {
		a.printf(" (%s trained)", size.Count(float64(rep.Trained)))
	}
	a.printf(", %s on %s, %d threads", r.Precision, r.Computer(), r.Threads)
	if r.World > 0 {
		a.printf(" in each of %d processes", r.World)
	}
	a.printf(" (%s)\n", r.Reason)
	s := rep.Run.Settings
	a.printf("update: %d x %d sequences = %s %s, %d updates; recompute %v\n", s.Accumulation, s.MicroBatch,
		size.Count(float64(int64(s.Effective())*r.Model.UnitsPerRow)), r.Model.Unit, t.MaxSteps, s.Recompute)
	a.printf("memory planned: %v before data, of which the arena %v (`snug plan` shows every part)\n", size.Bytes(rep.Total), size.Bytes(rep.Arena))
	_, rates := r.Schedule().Preview(40)
	a.printf("learning rate: %s  peak %.3g, last %.3g\n", sparkline(rates), slices.Max(rates), rates[len(rates)-1])
	a.expect(r)
	a.printf("speed %s: %s %s/s\n", cmp.Or(rep.Time.Note, "predicted"), predicted(rep.Time), r.Model.Unit)
}

// shortRun is how long a quickstart may take before a hint to shorten it.
const shortRun = 5 * time.Minute

// expect prints the time that a run is predicted to take.
func (a *app) expect(r session.Planned) {
	t := r.Report.Time
	a.printf("expected time: %s for %d updates, without evaluations and saves\n", wholeRun(t), r.Config.Training.MaxSteps)
	a.printf("  an update takes %s s: %.3g GFLOP in matmuls; %s\n", size.Count(t.Update), t.Model/1e9, r.Report.Speed.Source)
	if strings.HasSuffix(r.Config.Preset, "quickstart") && t.Run > shortRun.Seconds() {
		a.printf("this machine is slow for a quickstart: --training.max_steps %d takes about %v\n", max(1, int(shortRun.Seconds()/t.Update)), shortRun)
	}
}

// wholeRun is the time of all updates, epoch that of a pass over the data: ranges on a card.
func wholeRun(t plan.Timing) string {
	if t.Slow != nil {
		return span(t.Run, t.Slow.Run)
	}
	return span(t.Run, t.Run)
}

func epoch(t plan.Timing) string {
	if t.Slow != nil {
		return span(t.Epoch, t.Slow.Epoch)
	}
	return span(t.Epoch, t.Epoch)
}

// span is a range of seconds in words.
func span(least, most float64) string {
	words := func(seconds float64) string {
		d := time.Duration(seconds * float64(time.Second))
		switch {
		case d < time.Second:
			return max(d.Round(time.Millisecond), time.Millisecond).String()
		case d < 10*time.Second:
			return d.Round(100 * time.Millisecond).String()
		case d < 10*time.Hour:
			return d.Round(time.Second).String()
		}
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	if least == most {
		return words(least)
	}
	return words(least) + " to " + words(most)
}

// predicted is the speed of a plan in units per second, a range on a card.
func predicted(t plan.Timing) string {
	best, least := t.Rate()
	if best == least {
		return size.Count(best)
	}
	return size.Count(least) + " to " + size.Count(best)
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
