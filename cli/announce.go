package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/session"
)

// announce prints what will be run, as a summary of the plan.
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
	a.printf(", %s on %s", r.Precision, r.Computer())
	if with := r.Software(); len(with) > 0 {
		a.printf(" (%s)", strings.Join(with, ", "))
	}
	a.printf(", %s", size.Of(r.Threads, "thread"))
	if r.World > 0 {
		a.printf(" in each of %s", size.Of(r.World, "process"))
	}
	a.printf(" (%s)\n", r.Reason)
	s := rep.Run.Settings
	a.printf("update: %d x %d sequences = %s %s, %s; recompute %v\n", s.Accumulation, s.MicroBatch,
		size.Count(float64(int64(s.Effective())*r.Model.UnitsPerRow)), r.Model.Unit, size.Of(t.MaxSteps, "update"), s.Recompute)
	a.printf("memory planned: %v before data, of which the arena %v (`snug plan` shows every part)\n", size.Bytes(rep.Total), size.Bytes(rep.Arena))
	_, rates := r.Schedule().Preview(40)
	a.printf("learning rate: %s  peak %.3g, last %.3g", sparkline(rates), slices.Max(rates), rates[len(rates)-1])
	if rate := r.LearningRate(); rate != t.LearningRate {
		a.printf(" (%.3g is for a width of %d)", t.LearningRate, t.LearningRateWidth)
	}
	a.printf("\n")
	a.printf("speed %s: %s %s/s; an update takes %s s: %.3g GFLOP in matmuls; %s\n",
		cmp.Or(rep.Time.Note, "predicted"), predicted(rep.Time), r.Model.Unit, size.Count(rep.Time.Update), rep.Time.Model/1e9, rep.Speed.Source)
}

// expect prints what is expected of the run, before the first update.
func (a *app) expect(e session.Begins) {
	if run := e.Report.Run; run.Heap > 0 && e.Report.Target.Card == nil {
		a.printf("memory planned with data: %v\n", size.Bytes(e.Report.Total))
	}
	a.printf("expected time: %s\n", expected(e.Expected))
	if e.Whole.Runs > 1 {
		of := fmt.Sprintf("all %d phases", e.Of)
		if e.Whole.Runs < e.Of {
			of = fmt.Sprintf("%d of %d phases", e.Whole.Runs, e.Of)
		}
		a.printf("  of %s: %s\n", of, expected(e.Whole))
	}
	if t := e.Report.Time; t.EpochUnits > 0 {
		a.printf("%s", epochLine(e.Setup, t))
	}
	if s := e.Shorter; s != nil {
		a.printf("this machine is slow for a quickstart; one that takes about %s, and learns less, begins with:\n  snug train %s --fresh %v\n", span(s.Seconds, s.Seconds), e.Config.Preset, s)
	}
}

// expected formats a time and its parts.
func expected(e session.Expected) string {
	words := func(seconds float64) string { return span(seconds, seconds*e.Slow) }
	parts := []string{fmt.Sprintf("%s for %s", words(e.Updating), size.Of(e.Updates, "update"))}
	if e.Evaluations > 0 {
		parts = append(parts, fmt.Sprintf("%s for %s", words(e.Evaluating), size.Of(e.Evaluations, "evaluation")))
	}
	if e.Saving > 0 {
		parts = append(parts, words(e.Saving)+" for saves")
	}
	switch {
	case e.Reporting > 0 && e.Sampling > 0:
		parts = append(parts, words(e.Reporting+e.Sampling)+" for the report and the sample")
	case e.Reporting > 0:
		parts = append(parts, words(e.Reporting)+" for the report")
	case e.Sampling > 0:
		parts = append(parts, words(e.Sampling)+" for the sample")
	}
	return fmt.Sprintf("%s: %s", words(e.Seconds()), strings.Join(parts, ", "))
}

// wholeRun formats the time of all updates, and epoch the time of one pass over the data. On a card, both are
// ranges.
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

// span formats a range of seconds in words.
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
	return fromTo(words(least), words(most))
}

// fromTo formats a range, or one figure if both ends read the same.
func fromTo(from, to string) string {
	if from == to {
		return from
	}
	return from + " to " + to
}

// predicted formats the speed of a plan in units per second, as a range on a card.
func predicted(t plan.Timing) string {
	best, least := t.Rate()
	return fromTo(size.Count(least), size.Count(best))
}

// sparkline draws values, on a scale from 0 to the largest, as one line of blocks.
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
