package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/rundir"
)

type benchCmd struct {
	choice
	Against string `help:"Another preset to hold this one against." placeholder:"PRESET"`
	Updates int    `help:"Measured updates of each configuration, after three unmeasured ones; at least 5." default:"7" min:"5" of:"updates"`
	Ops     bool   `help:"Print where an update's time goes, operation by operation, beside the time that the machine's measured speed allows."`
	Shapes  bool   `help:"With --ops: a line for each shape."`
}

// Help implements kong.HelpProvider.
func (benchCmd) Help() string {
	return `Trains for some updates in each of several configurations, on the real data
through the real loader, and prints what each took: the configured one, then with
another precision, micro-batch and accumulation, and recomputation. Nothing is
saved but prepared data, in runs/bench.

Examples:
  snug bench
  snug bench --ops
  snug bench quickstart --against moderation-quickstart`
}

// benchRow is one configuration, measured.
type benchRow struct {
	Name     string        `json:"configuration"`
	Settings plan.Settings `json:"settings"`
	Load     float64       `json:"load_seconds"`         // compile, plan, arm, initialise
	First    float64       `json:"first_update_seconds"` // from the start of the loop
	Median   float64       `json:"update_seconds_median"`
	Best     float64       `json:"update_seconds_min"`
	Worst    float64       `json:"update_seconds_max"`
	Wait     float64       `json:"data_wait_seconds_median"`
	Rate     float64       `json:"units_per_second"`
	Unit     string        `json:"unit"`
	Arena    int64         `json:"arena_bytes"`
	Peak     int64         `json:"peak_rss_bytes"`
	Share    float64       `json:"flops_utilization"`
	ShareOf  string        `json:"flops_utilization_of,omitempty"`
	Losses   []float64     `json:"losses"`
}

// Run implements the verb.
func (b *benchCmd) Run(a *app) error {
	if b.Shapes && !b.Ops {
		return usage("--shapes: tells the shapes of --ops apart, which is not given")
	}
	s, err := a.load(b.choice, nil, true)
	if err != nil {
		return err
	}
	var rows []benchRow
	if b.Against != "" {
		other, err := a.load(choice{Preset: b.Against}, nil, true)
		if err != nil {
			return err
		}
		for _, x := range []*setup{s, other} {
			row, err := b.one(a, x, name(x), nil)
			if err != nil {
				return err
			}
			rows = append(rows, row)
		}
		return b.print(a, rows)
	}
	for _, v := range s.variants() {
		row, err := b.one(a, s, v.name, v.change)
		var no *plan.DoesNotFit
		if errors.As(err, &no) {
			a.printf("%s: %v\n", v.name, err)
			continue
		}
		if err != nil {
			return err
		}
		rows = append(rows, row)
		a.printf("%-28s %8.1f ms an update\n", v.name, 1e3*row.Median)
		if b.Ops { // one() printed the table of the configured program
			if a.asJSON {
				return a.json(rows)
			}
			return nil
		}
	}
	return b.print(a, rows)
}

func name(s *setup) string {
	if s.config.Preset != "" {
		return s.config.Preset
	}
	return s.config.System
}

// benchVariant is a change of the configured settings.
type benchVariant struct {
	name   string
	change func(*plan.Settings)
}

// variants are the configurations of the table.
func (s *setup) variants() []benchVariant {
	v := []benchVariant{{"as configured", nil}}
	for _, p := range []device.Precision{device.FP32, device.BF16, device.FP16} {
		if p != s.precision {
			v = append(v, benchVariant{"precision " + string(p), func(c *plan.Settings) { c.Precision = p }})
		}
	}
	if m := s.model.Shape; m.MicroBatch%2 == 0 {
		v = append(v, benchVariant{"micro-batch / 2, twice", func(c *plan.Settings) { c.MicroBatch, c.Accumulation = m.MicroBatch/2, 2*max(1, m.Accumulation) }})
	}
	for _, r := range []pass.Recompute{pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull} {
		v = append(v, benchVariant{"recompute " + r.String(), func(c *plan.Settings) { c.Recompute, c.Budget = r, 0 }})
	}
	return v
}

// one measures a configuration.
func (b *benchCmd) one(a *app, s *setup, name string, change func(*plan.Settings)) (row benchRow, err error) {
	t, err := s.hostTarget()
	if err != nil {
		return row, err
	}
	report, _, err := s.fit(t, s.precision)
	if err != nil {
		return row, err
	}
	c := report.Run.Settings
	if change != nil {
		change(&c)
	}
	began := time.Now()
	pl := s.planner(t)
	if report, err = pl.Check(c); err != nil {
		return row, err
	}
	p, err := pl.Program(c)
	if err != nil {
		return row, err
	}
	load := time.Since(began)
	m := *s.model
	m.Shape = shape(c)
	dir := filepath.Join("runs", "bench", s.config.System+"-"+s.config.Hash("data"))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return row, err
	}
	home, err := rundir.Look(dir)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	data, err := s.system.Open(a.ctx, s.config, &m, system.Env{Dir: home, Cache: filepath.Join(dir, "data"), Log: func(string, ...any) {}})
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, closeData(data)) }()
	resetPeakRSS()
	began = time.Now()
	r, err := s.ready(p, data)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	row = benchRow{Name: name, Settings: c, Unit: s.model.Unit, Arena: p.Layout.Bytes,
		Load: (load + time.Since(began)).Seconds()}
	return b.measure(a, s, r, data, report, row)
}

const benchWarmup = 3

func (b *benchCmd) measure(a *app, s *setup, r *engine.Executable, data *system.Run, report *plan.Report, row benchRow) (benchRow, error) {
	var took, wait, rate []float64
	var units float64
	products := newCounter(r.Program(), report)
	job := &train.Job{
		Runner: r, Feed: data.Feed, Updates: int64(benchWarmup + b.Updates), Seed: s.config.Training.Seed,
		Schedule: &train.Schedule{Kind: train.Constant, Peak: s.config.Training.LearningRate, Total: int64(benchWarmup + b.Updates)},
		Watch: func(e train.Event) {
			if st, ok := e.(train.Step); ok {
				row.Losses = append(row.Losses, st.Loss)
				if st.Update > benchWarmup {
					took, wait = append(took, st.Took.Seconds()), append(wait, st.Wait.Seconds())
					rate = append(rate, products.update(st.Variants)/st.Took.Seconds())
					units = float64(st.NewTokens)
				}
			}
		},
	}
	res, err := job.Run(a.ctx, 0)
	if errors.Is(err, train.ErrStopped) {
		err = a.ctx.Err() // nothing was saved to go on from
	}
	if err != nil {
		return row, err
	}
	sampler := device.NewSampler()
	row.Peak = sampler.Sample().PeakRSS
	if err := sampler.Close(); err != nil {
		return row, err
	}
	slices.Sort(took)
	slices.Sort(wait)
	row.First, row.Median, row.Best, row.Worst = res.FirstUpdate.Seconds(), took[len(took)/2], took[0], took[len(took)-1]
	row.Wait, row.Rate = wait[len(wait)/2], units/row.Median
	slices.Sort(rate)
	s.share(report, rate[len(rate)-1]) // the fastest may raise the peak
	row.Share = s.share(report, rate[len(rate)/2])
	row.ShareOf = report.Speed.PeakName
	s.keepPeak()
	if b.Ops {
		var fns, kinds []string
		for _, f := range r.Program().Funcs {
			// Of several compiled shapes the first is timed, as it is planned.
			if kind, _, _ := strings.Cut(f.Name, "@"); kind != engine.FuncEval && !slices.Contains(kinds, kind) {
				fns, kinds = append(fns, f.Name), append(kinds, kind)
			}
		}
		profile := plan.Profile{Shapes: b.Shapes}
		took, err := profile.Run(r, fns, b.Updates)
		if err != nil {
			return row, err
		}
		a.printf("\n%s%d runs took %.1f ms each with every node timed\n", profile.Table(report.Speed), b.Updates, 1e3*took.Seconds()/float64(b.Updates))
	}
	return row, nil
}

func (b *benchCmd) print(a *app, rows []benchRow) error {
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
