package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train"
)

// printSummary prints how a run ended.
func (a *app) printSummary(r session.Finished) {
	s, p := r.Summary, a.printf
	state := "done"
	switch {
	case errors.Is(r.Err, train.ErrStopped):
		state = "stopped"
	case r.Err != nil:
		state = "failed"
	case s.Dead():
		state = "done, but NOTHING WAS LEARNED"
	case s.Warning != nil:
		state = "done, but WHAT WAS LEARNED IS LOST"
	}
	p("\n%s: %s of %s, %s %s in %s\n", state, size.Thousands(s.Updates), size.Of(s.UpdatesPlanned, "update"), size.Count(float64(s.Tokens)), r.Model.Unit, shortDuration(time.Duration(s.Seconds*float64(time.Second))))
	if s.Updates > 0 {
		p("  train loss        %.4f\n", float64(s.TrainLoss))
	}
	if v, ok := s.Metrics[r.Monitor.Name]; ok {
		p("  %-17s %.4f   (held out)\n", r.Monitor.Name, float64(v))
	}
	for _, b := range r.Baselines {
		p("  %-17s %.4f   (same held-out data)\n", b.Name, b.Value)
	}
	if s.Warning != nil {
		p("  warning           %s\n", s.Warning.Text)
		for i, h := range s.Warning.Helps {
			p("  %-17s %s\n", [2]string{"try"}[min(i, 1)], h)
		}
	}
	if s.TokensPerSecond > 0 {
		p("  speed             %s %s/s", size.Count(s.TokensPerSecond), r.Model.Unit)
		if s.FlopsUtilization > 0 {
			p(", %.0f %% of the %s", 100*s.FlopsUtilization, s.Peak)
		}
		p("\n")
	}
	if s.Ranks > 0 {
		over := ""
		if s.Over != "" {
			over = " over " + s.Over
		}
		p("  processes         %d; waiting for gradients%s took %.0f %% of the time, exchanging them during computation another %.0f %%\n", s.Ranks, over, 100*s.Exchange, 100*s.Hidden)
	}
	memory := "  memory            arena %s planned, %s used; process peak %s of %s planned\n"
	if r.Card != nil {
		memory = "  memory            arena %s planned, %s used; process peak %s; %s planned on the card\n"
	}
	p(memory, size.Bytes(s.ArenaPlanned), size.Bytes(s.ArenaUsed), size.Bytes(s.PeakRSS), size.Bytes(s.PlannedTotal))
	if c := s.Card; c != nil {
		p("  card              busy %.0f %%, %s of its memory at most, %.0f of %.0f W, up to %d °C, %.0f MHz", c.Busy, size.Bytes(c.Memory), c.Watts, c.Cap, c.Celsius, c.MHz)
		if c.Slowed > 0 {
			p("; slowed %.0f %% of the time by %s", c.Slowed, c.SlowedBy)
		}
		p("\n")
	}
	for i, x := range s.Alerts {
		p("  %-17s %s\n", [2]string{"alerts"}[min(i, 1)], x.Text)
		if x.Do != "" {
			p("  %-17s   try: %s\n", "", x.Do)
		}
	}
	for i, x := range s.Advice {
		p("  %-17s %s: %s\n", [2]string{"advice"}[min(i, 1)], x.Because, x.Do)
	}
	if s.SaveFailures > 0 || s.SaveRetries > 0 {
		p("  checkpoints       %s, %s given up\n", size.Of(s.SaveRetries, "retry"), size.Of(s.SaveFailures, "save"))
	}
	if s.Checkpoint == "" {
		p("  checkpoint        none\n")
	} else {
		p("  checkpoint        %s\n", s.Checkpoint)
	}
	if s.BestCheckpoint != "" {
		p("  best checkpoint   %s   (used unless --checkpoint names another)\n", s.BestCheckpoint)
	}
	if !s.Done && s.Checkpoint == "" {
		return
	}
	p("\nNext:\n")
	if !s.Done {
		p("  snug train --resume --out %s   continues\n", shell.Path(r.Out))
		return
	}
	switch {
	case r.System.Language != nil:
		p("  snug generate %s", shell.Path(r.Dir))
		if prompt := r.System.Prompt(r.Config); prompt != "" {
			p(" --prompt %s", shell.Quote(prompt))
		}
		p("\n")
	case r.System.Pretrains != nil && r.System.Pretrains(r.Config): // what it trained is not used by itself
	case r.System.Predictor != nil:
		p("  snug predict %s FILE\n", shell.Path(r.Dir))
	}
	p("  snug eval %s\n  snug ckpt show %s\n", shell.Path(r.Dir), shell.Path(r.Dir))
}

func shortUnit(u string) string {
	if u == "tokens" {
		return "tok"
	}
	return u
}

func shortDuration(d time.Duration) string {
	if d < 0 || d > 1000*time.Hour {
		return "?"
	}
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
