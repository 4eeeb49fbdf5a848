package cli

import (
	"errors"
	"fmt"

	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/session"
)

type benchCmd struct {
	choice
	Against string `help:"Another preset to compare with." placeholder:"PRESET"`
	Updates int    `help:"Measured updates per configuration, after three unmeasured ones; at least 5." default:"7" min:"5" of:"updates"`
	Ops     bool   `help:"Print where an update's time goes, operation by operation, next to the time that the machine's measured speed allows."`
	Shapes  bool   `help:"With --ops: one line per shape."`
}

// Help implements kong.HelpProvider.
func (benchCmd) Help() string {
	return `Trains for a few updates in each of several configurations, on real data through
the real loader, and prints their times: the configured one first, then others
that change precision, micro-batch and accumulation, or recomputation. Nothing is
saved except prepared data, in runs/bench.

Examples:
  snug bench
  snug bench --ops
  snug bench quickstart --against moderation-quickstart`
}

// Run implements the verb.
func (b *benchCmd) Run(a *app) error {
	if b.Shapes && !b.Ops {
		return usage("--shapes: has an effect only with --ops")
	}
	s, err := a.load(b.choice, nil, true)
	if err != nil {
		return err
	}
	var rows []session.Measured
	if b.Against != "" {
		other, err := a.load(choice{Preset: b.Against}, nil, true)
		if err != nil {
			return err
		}
		for _, x := range []*session.Setup{s, other} {
			row, err := b.one(a, x, name(x), nil)
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		return b.print(a, rows)
	}
	for _, v := range s.Variants() {
		row, err := b.one(a, s, v.Name, v.Change)
		var no *plan.DoesNotFit
		if errors.As(err, &no) {
			a.printf("%s: %v\n", v.Name, err)
			continue
		}
		if err != nil {
			return err
		}
		rows = append(rows, row)
		a.printf("%-28s %8.1f ms an update\n", v.Name, 1e3*row.Median)
		if b.Ops { // one() printed the table of the configured program
			if a.asJSON {
				return a.json(rows)
			}
			return nil
		}
	}
	return b.print(a, rows)
}

// one measures a configuration.
func (b *benchCmd) one(a *app, s *session.Setup, name string, change func(*plan.Settings)) (session.Measured, error) {
	row, err := s.Bench(a.ctx, session.Bench{Updates: b.Updates, Ops: b.Ops, Shapes: b.Shapes}, name, change)
	if err == nil && b.Ops {
		a.printf("\n%s%d runs took %.1f ms each with every node timed\n", row.Profile.Table(row.Speed), b.Updates, 1e3*row.Traced.Seconds()/float64(b.Updates))
	}
	return row, err
}

// name is what a configuration is called in the table.
func name(s *session.Setup) string {
	if s.Config.Preset != "" {
		return s.Config.Preset
	}
	return s.Config.System
}

func (b *benchCmd) print(a *app, rows []session.Measured) error {
	if a.asJSON {
		return a.json(rows)
	}
	a.printf("\n")
	out := [][]string{{"CONFIGURATION", "UPDATE", "MIN - MAX", "AGAINST FIRST", "PER SECOND", "SHARE", "ARENA", "PEAK RSS", "LOAD", "FIRST UPDATE", "DATA WAIT"}}
	for _, r := range rows {
		out = append(out, []string{
			r.Name, fmt.Sprintf("%.1f ms", 1e3*r.Median), fmt.Sprintf("%.1f - %.1f", 1e3*r.Best, 1e3*r.Worst),
			fmt.Sprintf("%.2fx", r.Median/rows[0].Median), fmt.Sprintf("%s %s", count(r.Rate), r.Unit), fmt.Sprintf("%.0f %% of %s", 100*r.Share, r.ShareOf),
			size.Bytes(r.Arena).String(), size.Bytes(r.Peak).String(), fmt.Sprintf("%.2f s", r.Load), fmt.Sprintf("%.2f s", r.First), fmt.Sprintf("%.1f ms", 1e3*r.Wait),
		})
	}
	return a.table(out)
}
