package session

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/rundir"
)

// Measured is one configuration, measured.
type Measured struct {
	Name     string        `json:"configuration"`
	Settings plan.Settings `json:"settings"`
	Load     float64       `json:"load_seconds"`         // compile, plan, load, initialize
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
	// Profile is of the configured program, node by node, and Speed what it is held
	// against; where they were asked for. Traced is how long its runs took.
	Profile *plan.Profile `json:"-"`
	Speed   plan.Speed    `json:"-"`
	Traced  time.Duration `json:"-"`
}

// Variant is a change of the configured settings.
type Variant struct {
	Name   string
	Change func(*plan.Settings)
}

// Variants are the configurations of the table.
func (s *Setup) Variants() []Variant {
	v := []Variant{{"as configured", nil}}
	for _, p := range []device.Precision{device.FP32, device.BF16, device.FP16} {
		if p != s.Precision {
			v = append(v, Variant{"precision " + string(p), func(c *plan.Settings) { c.Precision = p }})
		}
	}
	if m := s.Model.Shape; m.MicroBatch%2 == 0 {
		v = append(v, Variant{"micro-batch / 2, twice", func(c *plan.Settings) { c.MicroBatch, c.Accumulation = m.MicroBatch/2, 2*max(1, m.Accumulation) }})
	}
	for _, r := range []pass.Recompute{pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull} {
		v = append(v, Variant{"recompute " + r.String(), func(c *plan.Settings) { c.Recompute, c.Budget = r, 0 }})
	}
	return v
}

// Bench says how a configuration is measured.
type Bench struct {
	Updates int // measured, after three unmeasured ones
	// Ops times the configured program node by node too, Shapes with each shape by
	// itself.
	Ops, Shapes bool
}

// BenchWarmup are the updates before those that are measured.
const BenchWarmup = 3

// Bench trains for some updates with changed settings (nil: as configured), on the
// real data through the real loader. Nothing is saved but prepared data, in
// runs/bench.
func (s *Setup) Bench(ctx context.Context, how Bench, name string, change func(*plan.Settings)) (row Measured, err error) {
	t, err := s.Target()
	if err != nil {
		return row, err
	}
	report, _, err := s.Fit(t, s.Precision)
	if err != nil {
		return row, err
	}
	c := report.Run.Settings
	if change != nil {
		change(&c)
	}
	began := time.Now()
	pl := s.Planner(t)
	if report, err = pl.Check(c); err != nil {
		return row, err
	}
	p, err := pl.Program(c)
	if err != nil {
		return row, err
	}
	load := time.Since(began)
	m := *s.Model
	m.Shape = s.shape(c)
	dir := filepath.Join("runs", "bench", s.Config.System+"-"+s.Config.Hash("data"))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return row, err
	}
	home, err := rundir.Look(dir)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	data, err := s.System.Open(ctx, s.Config, &m, system.Env{Dir: home, Cache: filepath.Join(dir, "data"), Log: silent})
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, CloseData(data)) }()
	resetPeakRSS()
	began = time.Now()
	x, err := s.Load(p, data)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	row = Measured{Name: name, Settings: c, Unit: s.Model.Unit, Arena: p.Layout.Bytes, Load: (load + time.Since(began)).Seconds()}
	if err := s.measure(ctx, how, x, data, report, &row); err != nil || !how.Ops {
		return row, err
	}
	return row, row.profile(x, how, report.Speed)
}

// measure trains and notes what the updates took.
func (s *Setup) measure(ctx context.Context, how Bench, x *engine.Executable, data *system.Run, report *plan.Report, row *Measured) error {
	var took, wait, rate []float64
	var units float64
	products, updates := newCounter(x.Program(), report), int64(BenchWarmup+how.Updates)
	job := &train.Job{
		Runner: x, Loader: data.Loader, Updates: updates, Seed: s.Config.Training.Seed,
		Schedule: &train.Schedule{Kind: train.Constant, Peak: s.Config.Training.LearningRate, Total: updates},
		OnEvent: func(e train.Event) {
			if st, ok := e.(train.Step); ok {
				row.Losses = append(row.Losses, st.Loss)
				if st.Update > BenchWarmup {
					took, wait = append(took, st.Took.Seconds()), append(wait, st.Wait.Seconds())
					rate = append(rate, products.update(st.Variants)/st.Took.Seconds())
					units = float64(st.NewTokens)
				}
			}
		},
	}
	res, err := job.Run(ctx, 0)
	if errors.Is(err, train.ErrStopped) {
		err = ctx.Err() // nothing was saved to go on from
	}
	if err != nil {
		return err
	}
	sampler := device.NewSampler()
	row.Peak = sampler.Sample().PeakRSS
	if err := sampler.Close(); err != nil {
		return err
	}
	slices.Sort(took)
	slices.Sort(wait)
	row.First, row.Median, row.Best, row.Worst = res.FirstUpdate.Seconds(), took[len(took)/2], took[0], took[len(took)-1]
	row.Wait, row.Rate = wait[len(wait)/2], units/row.Median
	slices.Sort(rate)
	s.Share(report, rate[len(rate)-1]) // the fastest may raise the peak
	row.Share = s.Share(report, rate[len(rate)/2])
	row.ShareOf = report.Speed.PeakName
	s.keepPeak()
	return nil
}

// profile times the functions of an update node by node.
func (row *Measured) profile(x *engine.Executable, how Bench, speed plan.Speed) (err error) {
	var fns, kinds []string
	for _, f := range x.Program().Funcs {
		// Of several compiled shapes the first is timed, as it is planned.
		if kind, _, _ := strings.Cut(f.Name, "@"); kind != engine.FuncEval && !slices.Contains(kinds, kind) {
			fns, kinds = append(fns, f.Name), append(kinds, kind)
		}
	}
	row.Profile, row.Speed = &plan.Profile{Shapes: how.Shapes}, speed
	row.Traced, err = row.Profile.Run(x, fns, how.Updates)
	return err
}
