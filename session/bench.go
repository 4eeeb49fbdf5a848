package session

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/rundir"
)

// Measured holds the measurements of one configuration.
type Measured struct {
	Name     string        `json:"configuration"`
	At       float64       `json:"at,omitempty"` // the value that a sweep varies, if it is a number
	Current  bool          `json:"as_configured,omitempty"`
	Settings plan.Settings `json:"settings"`
	Workers  int           `json:"workers,omitempty"` // loader workers, if a sweep varies them
	Prefetch int           `json:"prefetch,omitempty"`
	Load     float64       `json:"load_seconds"`         // compile, plan, load, initialize
	First    float64       `json:"first_update_seconds"` // from the start of the loop
	Median   float64       `json:"update_seconds_median"`
	Best     float64       `json:"update_seconds_min"`
	Worst    float64       `json:"update_seconds_max"`
	Updates  int           `json:"updates_measured"`
	Planned  float64       `json:"update_seconds_predicted"`
	Wait     float64       `json:"data_wait_seconds_median"`
	Rate     float64       `json:"units_per_second"`
	Unit     string        `json:"unit"`
	Arena    int64         `json:"arena_bytes"`
	Total    int64         `json:"planned_total_bytes"`
	// Others is how many processors other programs kept busy during training; 0 if training took less than a
	// second.
	Others float64 `json:"processors_busy_with_others,omitempty"`
	// Peak is the peak memory of the process, CardUsed the memory taken on the card.
	Peak     int64 `json:"peak_rss_bytes"`
	CardUsed int64 `json:"card_used_bytes,omitempty"`
	// Joules is the energy that the card drew per update; 0 if unknown.
	Joules float64 `json:"joules_per_update,omitempty"`
	// Loader is the throughput of the loader alone, in units per second; nil if not measured.
	Loader  *Spread   `json:"loader_units_per_second,omitempty"`
	Share   float64   `json:"flops_utilization"`
	ShareOf string    `json:"flops_utilization_of,omitempty"`
	Losses  []float64 `json:"losses"`
	// Profile times the configured program node by node, and Speed is what it is compared with; both are set
	// only on request. Traced is how long the profiled runs took.
	Profile *plan.Profile `json:"-"`
	Speed   plan.Speed    `json:"-"`
	Traced  time.Duration `json:"-"`
	// Shape is the compiled shape that most micro-batches had, which the profile is of; empty if there is only one.
	Shape string `json:"shape,omitempty"`
	// Operations are the operations of the profile, longest first.
	Operations []plan.ProfileRow `json:"operations,omitempty"`
}

// Spread is a median with its range.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spread returns the Spread of values. It sorts values.
func spread(values []float64) Spread {
	slices.Sort(values)
	return Spread{values[len(values)/2], values[0], values[len(values)-1]}
}

// BenchWarmup is the number of unmeasured updates before the measured ones.
const BenchWarmup = 3

// BenchOptions control how configurations are measured.
type BenchOptions struct {
	Updates int // measured updates, after [BenchWarmup] unmeasured ones
	// Limit is the longest that a configuration may take, by prediction; 0 means no limit.
	Limit time.Duration
	// Synthetic uses generated batches even if there is data.
	Synthetic bool
	// Ops also times the configured program node by node, Shapes with each shape separately.
	Ops, Shapes bool
}

// Bench measures configurations of a setup. It writes nothing but prepared data, which goes to data.cache_dir
// or else to a temporary folder that Close removes.
type Bench struct {
	*Setup
	how BenchOptions
	// Why says why micro-batches are synthetic; empty if they are not.
	Why string

	ctx     context.Context
	target  plan.Target
	planner *plan.Planner
	dir     string
	done    map[point]*Measured
	base    int64 // heap in use before anything was measured
	// current holds the configured settings after the planner has decided the open ones; it is zero if they
	// do not fit.
	current plan.Settings
	// slower is the ratio of measured to predicted update time in the last measurement, at least 1.
	slower float64
}

// point identifies a measurement by everything that it depends on.
type point struct {
	plan.Settings
	workers, prefetch int
}

// LacksData says which missing data or weights keep a configuration from being trained as it is; it returns
// an empty string if nothing is known to be missing. If the user named the data, missing data is an error,
// not a reason to use synthetic data.
func (s *Setup) LacksData() string {
	d := &s.Config.Data
	origin, _ := s.Config.Origin("data.source")
	if origin.Kind == config.File || origin.Kind == config.Flag {
		return ""
	}
	if len(d.Source) == 0 && d.Format != "gotree" {
		return "data.source is not set"
	}
	if s.System.Missing != nil {
		if err := s.System.Missing(s.Config); err != nil {
			return err.Error()
		}
	}
	if s.System.Phases != nil && slices.ContainsFunc(s.System.Phases(s.Config, ""), func(p system.Phase) bool { return p.From != "" }) {
		return "its phases start from one another's weights"
	}
	for _, pattern := range d.Source {
		if found, err := filepath.Glob(pattern); err == nil && len(found) == 0 && pattern != "synthetic" {
			return fmt.Sprintf("data.source of the preset, %s, is not there", pattern)
		}
	}
	return ""
}

// Bench prepares to measure configurations of a setup. Cancelling ctx stops any measurement.
func (s *Setup) Bench(ctx context.Context, o BenchOptions) (*Bench, error) {
	b := &Bench{Setup: s, how: o, ctx: ctx, Why: s.LacksData(), done: map[point]*Measured{}, base: liveHeap()}
	if o.Synthetic {
		b.Why = "asked for"
	}
	if b.Why != "" && s.System.Synthetic == nil {
		return nil, usage("%s: and %s has no rule to generate batches", b.Why, s.Config.System)
	}
	var err error
	if b.target, err = s.Target(); err != nil {
		return nil, err
	}
	b.planner, b.slower = s.Planner(b.target), 1
	if report, err := b.check(nil); err == nil {
		b.current = report.Run.Settings
	}
	b.dir, err = durable.Scratch("bench")
	return b, err
}

// Close removes the prepared data.
func (b *Bench) Close() error { return os.RemoveAll(b.dir) }

// settings returns the configured settings.
func (b *Bench) settings() (plan.Settings, error) { return b.Settings(b.Precision) }

// check plans the settings after change; a nil change plans them as configured.
func (b *Bench) check(change func(*plan.Settings)) (*plan.Report, error) {
	c, err := b.settings()
	if err != nil {
		return nil, err
	}
	if change != nil {
		change(&c)
	}
	return b.planner.Check(b.chunked(c, b.target))
}

// open opens real or synthetic data for a program.
func (b *Bench) open(p *engine.Program, c plan.Settings, at point) (*system.Run, error) {
	m := *b.Model
	m.Shape = b.shape(c)
	if b.Why != "" {
		made := b.System.Synthetic(b.Config)
		l, err := made.Loader(p, c.Accumulation, m.Unit, b.Config.Training.Seed)
		return &system.Run{Loader: l, Load: made.Load, Close: func() error { return nil }}, err
	}
	own := *b.Config
	if at.workers > 0 {
		own.Data.Workers = at.workers
	}
	if at.prefetch > 0 {
		own.Data.Prefetch = at.prefetch
	}
	// A system may store what it prepares next to its run directory.
	dir := filepath.Join(b.dir, "run")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	home, err := rundir.Look(dir)
	if err != nil {
		return nil, err
	}
	run, err := b.Setup.open(b.ctx, &own, &m, system.Env{Dir: home, Cache: b.Cache(dir), Log: silent})
	if err != nil {
		return nil, errors.Join(err, home.Close())
	}
	end := run.Close
	run.Close = func() error { return errors.Join(end(), home.Close()) }
	return run, nil
}

// tooLong reports a configuration that was not measured because of its predicted time, or was given up
// because of the time of its first updates.
type tooLong struct {
	needs, limit time.Duration
	each         time.Duration // per update; 0 if the limit passed in the middle of one
	// update is the last update before giving up; 0 if none was started.
	update int64
}

func (e tooLong) Error() string {
	if e.each == 0 {
		return fmt.Sprintf("given up in the middle of an update, when --limit %s had passed (0 runs all)", about(e.limit))
	}
	if e.update > 0 {
		return fmt.Sprintf("given up after update %d, at whose speed (%s an update) it takes %s, over --limit %s (0 runs all)", e.update, about(e.each), about(e.needs), about(e.limit))
	}
	return fmt.Sprintf("predicted to take %s, %s an update, over --limit %s (0 runs all)", about(e.needs), about(e.each), about(e.limit))
}

// ExitCode is that of a usage error: the limit is part of the command line.
func (tooLong) ExitCode() int { return 2 }

// about rounds a duration to the second, or finer if it is short.
func about(d time.Duration) string {
	unit := time.Second
	for unit > 1 && d < 10*unit {
		unit /= 10
	}
	return d.Round(unit).String()
}

// Measure trains for a few updates with the settings after change; a nil change measures them as configured.
// A configuration that was already measured is not measured again.
func (b *Bench) Measure(change func(*plan.Settings)) (*Measured, error) {
	return b.measure(change, point{})
}

func (b *Bench) measure(change func(*plan.Settings), at point) (row *Measured, err error) {
	began := time.Now()
	report, err := b.check(change)
	if err != nil {
		return nil, err
	}
	at.Settings = report.Run.Settings
	if kept := b.done[at]; kept != nil {
		again := *kept
		return &again, nil
	}
	each := time.Duration(b.slower * report.Time.Update * float64(time.Second))
	if needs := each * time.Duration(BenchWarmup+b.how.Updates); b.how.Limit > 0 && needs > b.how.Limit {
		return nil, tooLong{needs: needs, limit: b.how.Limit, each: each}
	}
	p, err := b.planner.Program(at.Settings)
	if err != nil {
		return nil, err
	}
	load := time.Since(began)
	data, err := b.open(p, at.Settings, at)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, CloseData(data)) }()
	// As in a run. Memory of planning and of the previous configuration must not count for this one.
	b.planner = b.Planner(b.target)
	debug.FreeOSMemory()
	resetPeakRSS()
	defer runHeap()()
	whole, err := b.withData(p, b.target, at.Settings, data, heapAdded(b.base))
	if err != nil {
		return nil, err
	}
	if !whole.Fits {
		return nil, &plan.DoesNotFit{Report: whole}
	}
	_, free, err := backend.CardOf(b.Backend)
	if err != nil {
		return nil, err
	}
	began = time.Now()
	x, err := b.Setup.Load(p, data)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	row = &Measured{
		Settings: at.Settings, Workers: at.workers, Prefetch: at.prefetch, Unit: b.Model.Unit, Arena: p.Layout.Bytes, Total: whole.Total,
		Planned: report.Time.Update, Updates: b.how.Updates, Load: (load + time.Since(began)).Seconds(),
	}
	if _, left, err := backend.CardOf(b.Backend); err != nil {
		return nil, err
	} else if b.Card != nil {
		row.CardUsed = free - left
	}
	if at.workers > 0 || at.prefetch > 0 {
		if row.Loader, err = b.alone(x, data.Loader); err != nil {
			return nil, err
		}
	}
	if err := b.train(x, data, report, row); err != nil {
		return nil, err
	}
	if b.how.Ops {
		if err := b.profile(x, data.Loader, row, report.Speed); err != nil {
			return nil, err
		}
	}
	b.slower = max(1, row.Best/row.Planned) // uses the fastest update: what slowed the others may be over
	kept := *row
	b.done[at] = &kept
	return row, nil
}

// train trains and records how long the updates took.
func (b *Bench) train(x *engine.Executable, data *system.Run, report *plan.Report, row *Measured) (err error) {
	var took, wait, flops, rate []float64
	shapes := map[string]int{} // of micro-batches
	products, updates := newCounter(x.Program(), report), int64(BenchWarmup+b.how.Updates)
	energy := backend.NewMeter(b.Backend)
	ctx, giveUp := context.WithCancelCause(b.ctx)
	defer giveUp(nil)
	if b.how.Limit > 0 {
		overdue := time.AfterFunc(b.how.Limit, func() { giveUp(tooLong{limit: b.how.Limit}) })
		defer overdue.Stop()
	}
	clock := pace{began: time.Now(), updates: updates, limit: b.how.Limit}
	job := &train.Job{
		Runner: x, Loader: data.Loader, Updates: updates, Seed: b.Config.Training.Seed,
		Schedule: &train.Schedule{Kind: train.Constant, Peak: b.LearningRate(), Total: updates},
		OnEvent: func(e train.Event) {
			if st, ok := e.(train.Step); ok {
				row.Losses = append(row.Losses, st.Loss)
				for _, v := range st.Variants {
					if shapes[v]++; shapes[v] > shapes[row.Shape] {
						row.Shape = v
					}
				}
				if long := clock.after(st.Update, st.Took); long != nil {
					giveUp(*long)
				}
				if st.Update == BenchWarmup {
					energy.Begin()
				}
				if st.Update > BenchWarmup {
					took, wait = append(took, st.Took.Seconds()), append(wait, st.Wait.Seconds())
					flops = append(flops, products.update(st.Variants)/st.Took.Seconds())
					rate = append(rate, float64(st.NewTokens)/st.Took.Seconds())
				}
			}
		},
	}
	sampler := device.NewSampler()
	defer func() { err = errors.Join(err, sampler.Close()) }()
	res, err := job.Run(ctx, 0)
	if errors.Is(err, train.ErrStopped) {
		err = context.Cause(ctx) // not ErrStopped: nothing was saved to continue from
	}
	if err != nil {
		return err
	}
	row.Joules = energy.Joules() / float64(b.how.Updates)
	now := sampler.Sample()
	row.Peak = now.PeakRSS
	if now.At.Sub(clock.began) >= time.Second {
		row.Others = max(0, now.MachineCPU*float64(b.Host.CPU.Logical)-now.ProcessCPU) / 100
	}
	t := spread(took)
	row.First, row.Median, row.Best, row.Worst = res.FirstUpdate.Seconds(), t.Median, t.Min, t.Max
	row.Wait, row.Rate = spread(wait).Median, spread(rate).Median
	f := spread(flops)
	b.Setup.Share(report, f.Max) // the fastest update may raise the peak
	row.Share = b.Setup.Share(report, f.Median)
	row.ShareOf = report.Speed.PeakName
	b.keepPeak()
	return nil
}

// pace stops training that exceeds a time limit, whatever the prediction was.
type pace struct {
	began   time.Time
	updates int64 // total
	limit   time.Duration
	least   time.Duration // time of the fastest update; the first is slower than the rest
}

// after returns an error if training would exceed the limit even at the pace of its fastest update so far,
// and nil otherwise.
func (p *pace) after(update int64, took time.Duration) *tooLong {
	if p.least == 0 || took < p.least {
		p.least = took
	}
	needs := time.Since(p.began) + time.Duration(p.updates-update)*p.least
	if p.limit == 0 || update == p.updates || needs <= p.limit {
		return nil
	}
	return &tooLong{needs, p.limit, p.least, update}
}

// loaderRound is the minimum length of a round in which the loader alone is measured.
const loaderRound = 50 * time.Millisecond

// alone measures a loader without training: batches are written into the inputs of a program, but nothing is
// computed.
func (b *Bench) alone(x *engine.Executable, l train.DataLoader) (*Spread, error) {
	next := func() (int64, error) {
		u, err := l.Next()
		if err != nil {
			return 0, err
		}
		for m := range u.Micro {
			if err := u.Fill(m, train.Inputs{Runner: x, Slot: m % engine.Slots}); err != nil {
				return 0, err
			}
		}
		return u.Tokens, nil
	}
	// Batches prepared before the clock started do not count.
	for range b.Config.Data.Prefetch + BenchWarmup {
		if _, err := next(); err != nil {
			return nil, err
		}
	}
	var rates []float64
	for range b.how.Updates {
		var units int64
		began := time.Now()
		for n := 0; n == 0 || time.Since(began) < loaderRound; n++ {
			if err := b.ctx.Err(); err != nil {
				return nil, err
			}
			k, err := next()
			if err != nil {
				return nil, err
			}
			units += k
		}
		rates = append(rates, float64(units)/time.Since(began).Seconds())
	}
	s := spread(rates)
	return &s, nil
}

// profile times the functions of an update node by node, on a micro-batch of the shape that most had.
func (b *Bench) profile(x *engine.Executable, l train.DataLoader, row *Measured, speed plan.Speed) error {
	if err := fillWith(x, l, row.Shape); err != nil {
		return err
	}
	var fns []string
	for _, f := range x.Program().Funcs {
		if kind, shape, several := strings.Cut(f.Name, "@"); kind != engine.FuncEval && (!several || shape == row.Shape) {
			fns = append(fns, f.Name)
		}
	}
	row.Profile, row.Speed = &plan.Profile{Shapes: b.how.Shapes}, speed
	traced, err := row.Profile.Run(x, fns, b.how.Updates)
	row.Traced, row.Operations = traced, row.Profile.Rows(speed)
	return err
}

// fillWith writes the next micro-batch of a shape into the inputs of a program's first slot.
func fillWith(x *engine.Executable, l train.DataLoader, shape string) error {
	for range 1000 {
		u, err := l.Next()
		if err != nil {
			return err
		}
		for m := range u.Micro {
			if u.Variant(m) == shape {
				return u.Fill(m, train.Inputs{Runner: x})
			}
		}
	}
	return fmt.Errorf("no micro-batch of shape %s came again in 1000 updates", shape)
}
