package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/internal/suggest"
	"github.com/snug-ml/snug/system"
)

// Sweep holds the measurements of configurations that differ in one setting.
type Sweep struct {
	Name  string `json:"sweep"`
	Title string `json:"title"`
	// Axis names what At of a row means; empty if rows only have names.
	Axis string     `json:"axis,omitempty"`
	Rows []Measured `json:"rows"`
	// Skipped lists what was not measured, with reasons.
	Skipped []Skipped `json:"not_measured,omitempty"`
	// Refused says why there is nothing to sweep; empty if there is something.
	Refused string `json:"refused,omitempty"`
}

// Skipped is a configuration that was not measured.
type Skipped struct {
	Name   string `json:"configuration"`
	Reason string `json:"reason"`
	// Total is the planned memory, if it was planned.
	Total int64 `json:"planned_total_bytes,omitempty"`
	Err   error `json:"-"`
}

// The names of the sweeps.
const (
	SweepVariants     = "variants" // what `snug bench` measures by default
	SweepAgainst      = "against"
	SweepBatch        = "batch"
	SweepAccumulation = "accumulation"
	SweepWorkers      = "workers"
	SweepPrefetch     = "prefetch"
	SweepPrecision    = "precision"
	SweepRecompute    = "recompute"
)

// Sweeps lists the sweeps in the order in which they run.
var Sweeps = []string{SweepBatch, SweepAccumulation, SweepWorkers, SweepPrefetch, SweepPrecision, SweepRecompute}

// CheckSweeps rejects unknown names.
func CheckSweeps(names []string) error {
	for i, n := range names {
		if slices.Contains(names[:i], n) {
			return usage("--sweep: %s is given twice", n)
		}
		if slices.Contains(Sweeps, n) {
			continue
		}
		hint := ""
		switch near, ok := suggest.Nearest(n, Sweeps); {
		case n == "compile" || n == "fusion":
			hint = "; every program is compiled and fused, there is no mode to switch"
		case ok:
			hint = "; did you mean " + near + "?"
		}
		return usage("--sweep: there is no sweep %q, only %s%s", n, strings.Join(Sweeps, ", "), hint)
	}
	return nil
}

// candidate is a configuration to measure.
type candidate struct {
	name   string
	at     float64
	change func(*plan.Settings)
	point  point
}

// Sweep measures one sweep. It calls each after every configuration, with the results so far. An error ends
// the sweep, and the results so far are returned with it.
func (b *Bench) Sweep(name string, each func(*Sweep)) (s *Sweep, err error) {
	s = &Sweep{Name: name, Rows: []Measured{}}
	base, err := b.settings()
	if err != nil {
		return s, err
	}
	base.Accumulation = max(1, base.Accumulation)
	var list []candidate
	switch name {
	case SweepVariants:
		s.Title = "as configured, and with other settings"
		list = b.variants(base)
	case SweepBatch:
		s.Title, s.Axis = "micro-batch, one an update, up to the largest that fits by plan", "rows"
		return s, b.batches(base, s, each)
	case SweepAccumulation:
		s.Title, s.Axis = fmt.Sprintf("%s an update, in more and smaller micro-batches", size.Of(base.Effective(), "row")), "micro-batches"
		list = b.accumulations(base)
		if len(list) < 2 {
			s.Refused = fmt.Sprintf("an update has %s, which cannot be divided: raise training.batch_size", size.Of(base.Effective(), "row"))
		}
	case SweepWorkers, SweepPrefetch:
		list, s.Refused, err = b.loading(name)
		s.Title, s.Axis = "goroutines that prepare batches (data.workers)", "workers"
		if name == SweepPrefetch {
			s.Title, s.Axis = "updates whose data is prepared ahead (data.prefetch)", "updates ahead"
		}
	case SweepPrecision:
		s.Title = "compute precision of matmuls"
		if list = b.precisions(s); len(list) < 2 {
			s.Refused = "this device computes in " + list[0].name + " only"
		}
	case SweepRecompute:
		s.Title = "activations that are dropped and recomputed"
		list, s.Refused, err = b.recomputes()
	default:
		err = CheckSweeps([]string{name})
	}
	if err != nil || s.Refused != "" {
		return s, err
	}
	for _, c := range list {
		if _, err := b.add(s, c, each); err != nil {
			return s, err
		}
	}
	return s, nil
}

// add measures a candidate, or records why not. fits reports whether the plan fits.
func (b *Bench) add(s *Sweep, c candidate, each func(*Sweep)) (fits bool, err error) {
	row, err := b.measure(c.change, c.point)
	if err != nil {
		if fits, err = b.skip(s, c, err); err == nil {
			each(s)
		}
		return fits, err
	}
	row.Name, row.At = c.name, c.at
	row.Current = row.Settings == b.current && (c.point.workers == 0 || c.point.workers == b.Config.Data.Workers) && (c.point.prefetch == 0 || c.point.prefetch == b.Config.Data.Prefetch)
	s.Rows = append(s.Rows, *row)
	each(s)
	return true, nil
}

// skip records why a candidate was not measured, or returns the error that ends the sweep.
func (b *Bench) skip(s *Sweep, c candidate, err error) (fits bool, _ error) {
	k := Skipped{Name: c.name, Err: err}
	var no *plan.DoesNotFit
	var hopeless *plan.Hopeless
	var long tooLong
	switch {
	case errors.As(err, &no):
		k.Total = no.Report.Total
		k.Reason = notFitting(no)
	case errors.As(err, &hopeless):
		k.Total, k.Reason = hopeless.Least, "does not fit: "+hopeless.Error()
	case errors.As(err, &long):
		k.Reason, fits = long.Error(), true
		if r, err := b.check(c.change); err == nil {
			k.Total = r.Total
		}
	default:
		return false, err
	}
	s.Skipped = append(s.Skipped, k)
	return fits, nil
}

// notFitting formats a refusal as one line.
func notFitting(no *plan.DoesNotFit) string {
	t := "does not fit by plan"
	if no.Smallest != nil {
		t += "; would with " + no.Smallest.Change
	}
	return t
}

// variants returns the configured settings, and variants that change one setting each.
func (b *Bench) variants(base plan.Settings) []candidate {
	list := []candidate{{name: "as configured"}}
	for _, p := range []device.Precision{device.FP32, device.BF16, device.FP16} {
		if p != base.Precision && b.supports(p) == nil {
			list = append(list, candidate{name: "precision " + string(p), change: func(c *plan.Settings) { c.Precision = p }})
		}
	}
	if base.MicroBatch%2 == 0 && base.MicroBatch/2 >= b.Model.LeastRows {
		list = append(list, candidate{name: "micro-batch / 2, twice", change: func(c *plan.Settings) {
			c.MicroBatch, c.Accumulation = base.MicroBatch/2, 2*base.Accumulation
		}})
	}
	for _, r := range []pass.Recompute{pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull} {
		list = append(list, candidate{name: "recompute " + r.String(), change: func(c *plan.Settings) { c.Recompute, c.Budget = r, 0 }})
	}
	return list
}

// supports says why the device cannot compute in a precision; nil if it can.
func (b *Bench) supports(p device.Precision) error {
	_, _, err := device.ChoosePrecision(p, b.own())
	return err
}

// batches measures micro-batches of 1, 2, 4, ... rows and the configured one, up to the largest that fits.
// Those predicted to take too long are only planned.
func (b *Bench) batches(base plan.Settings, s *Sweep, each func(*Sweep)) error {
	rows := max(1, b.Model.LeastRows)
	sizes := []int{base.MicroBatch}
	for n := rows; n <= 1<<16; n *= 2 {
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	over := 0
	for _, n := range slices.Compact(sizes) {
		if err := b.ctx.Err(); err != nil {
			return err
		}
		c := candidate{name: fmt.Sprint(n), at: float64(n), change: func(c *plan.Settings) { c.MicroBatch, c.Accumulation = n, 1 }}
		fits, err := b.add(s, c, each)
		if err != nil {
			return err
		}
		if k := len(s.Rows); k > 0 && s.Rows[k-1].Name == c.name {
			s.Rows[k-1].Current = n == base.MicroBatch
			continue
		}
		if over++; !fits || over == 3 { // at most three of those that take too long are planned
			break
		}
	}
	return nil
}

// accumulations returns the ways to divide the rows of an update into micro-batches.
func (b *Bench) accumulations(base plan.Settings) (list []candidate) {
	rows := base.Effective()
	for a := 1; a <= rows; a++ {
		size := rows / a
		if rows%a != 0 || size < max(1, b.Model.LeastRows) || a&(a-1) != 0 && a != base.Accumulation {
			continue
		}
		list = append(list, candidate{name: fmt.Sprintf("%d x %d", a, size), at: float64(a), change: func(c *plan.Settings) {
			c.MicroBatch, c.Accumulation = size, a
		}})
	}
	return list
}

// loading returns other numbers of workers, or of updates prepared ahead.
func (b *Bench) loading(name string) (list []candidate, refused string, err error) {
	if b.Why != "" {
		return nil, "batches are synthetic (" + b.Why + "), so there is no loader to measure: name data with --data.source", nil
	}
	key, now, most := system.WorkersKey, b.Config.Data.Workers, 2*b.Host.CPU.Threads
	if name == SweepPrefetch {
		key, now, most = system.PrefetchKey, b.Config.Data.Prefetch, 8
	}
	keys, err := b.loaderKeys()
	if err != nil {
		return nil, "", err
	}
	if !slices.Contains(keys, key) {
		return nil, fmt.Sprintf("the loader of %s does not follow %s", b.Config.System, key), nil
	}
	counts := []int{now}
	for n := 1; n <= most; n *= 2 {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	for _, n := range slices.Compact(counts) {
		at := point{workers: n, prefetch: b.Config.Data.Prefetch}
		if name == SweepPrefetch {
			at = point{workers: b.Config.Data.Workers, prefetch: n}
		}
		list = append(list, candidate{name: fmt.Sprint(n), at: float64(n), point: at})
	}
	return list, "", nil
}

// loaderKeys returns the settings that the data loader uses.
func (b *Bench) loaderKeys() (keys []string, err error) {
	report, err := b.check(nil)
	if err != nil {
		return nil, err
	}
	run, err := b.open(nil, report.Run.Settings, point{})
	if err != nil {
		return nil, err
	}
	return run.LoaderKeys, CloseData(run)
}

// precisions returns those that the device computes in, and skips the others.
func (b *Bench) precisions(s *Sweep) (list []candidate) {
	for _, p := range []device.Precision{device.FP32, device.BF16, device.FP16} {
		if err := b.supports(p); err != nil {
			s.Skipped = append(s.Skipped, Skipped{Name: string(p), Reason: err.Error()})
			continue
		}
		list = append(list, candidate{name: string(p), change: func(c *plan.Settings) { c.Precision = p }})
	}
	return list
}

// recomputes returns the modes of gradient_checkpointing, if the model has blocks to recompute.
func (b *Bench) recomputes() (list []candidate, refused string, err error) {
	modes := []pass.Recompute{pass.RecomputeNone, pass.RecomputeActivation, pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull}
	blocks, err := b.blocks()
	if err != nil {
		return nil, "", err
	}
	if blocks == 0 {
		return nil, fmt.Sprintf("this model of %s has no blocks that could be recomputed", b.Config.System), nil
	}
	for _, r := range modes {
		list = append(list, candidate{name: r.String(), change: func(c *plan.Settings) { c.Recompute, c.Budget = r, 0 }})
	}
	return list, "", nil
}

// blocks returns how many blocks keep something for the backward half.
func (b *Bench) blocks() (int, error) {
	report, err := b.check(func(c *plan.Settings) { c.Recompute, c.Budget = pass.RecomputeNone, 0 })
	var no *plan.DoesNotFit
	if errors.As(err, &no) {
		report, err = no.Report, nil
	}
	var hopeless *plan.Hopeless
	if errors.As(err, &hopeless) {
		return 1, nil // each mode will report that it does not fit
	}
	if err != nil {
		return 0, err
	}
	return len(report.Blocks), nil
}

// Against measures the configured settings as a row of a sweep that compares configurations.
func (b *Bench) Against(s *Sweep, name string, each func(*Sweep)) error {
	_, err := b.add(s, candidate{name: name}, each)
	return err
}
