package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train/rundir"
)

type benchCmd struct {
	choice
	Sweep     []string      `help:"Vary one thing at a time: batch, accumulation, workers, prefetch, precision, recompute; several with commas." placeholder:"NAME"`
	Suite     bool          `help:"All sweeps."`
	Against   string        `help:"Another preset to compare with." placeholder:"PRESET"`
	Updates   int           `help:"Measured updates per configuration, after three unmeasured ones; at least 5." default:"7" min:"5" of:"updates"`
	Limit     time.Duration `help:"Plan a configuration that is predicted to take longer, but do not run it, and give up one whose first updates show that it does; 0: run all." default:"5m" min:"0" of:"duration"`
	Synthetic bool          `help:"Make up batches, although there is data."`
	Out       string        `help:"Write report.html, with pictures, and bench.json to this folder." placeholder:"DIR"`
	Ops       bool          `help:"Print where an update's time goes, operation by operation, next to the time that the machine's measured speed allows."`
	Shapes    bool          `help:"With --ops: one line per shape."`
}

// Help implements kong.HelpProvider.
func (benchCmd) Help() string {
	return `Trains for a few updates in each of several configurations and prints their times,
the medians with the ranges. Without --sweep: the configured one, then others that
change precision, micro-batch and accumulation, or recomputation.

Data goes through the real loader. Where a configuration names no data, or the files
or weights that a preset names are not there, synthetic batches of the same shapes are used,
weights are random, and the first line says so. Prepared data is in
data.cache_dir, or in a temporary folder; nothing else is written but --out.

Ctrl-C prints what was measured. There is no sweep of compile modes: every program is
compiled and fused, always. --hardware.device chooses what is measured.

Examples:
  snug bench
  snug bench --sweep batch,precision
  snug bench moderation-t4 --suite --out report
  snug bench agiformer-original --against agiformer-ultra-t4
  snug bench --ops`
}

// benchSchema names the format of the document.
const benchSchema = "snug-bench/1"

// benchDocument is what --json prints and bench.json contains.
type benchDocument struct {
	Schema         string           `json:"schema"`
	Snug           string           `json:"snug"`
	Date           string           `json:"date"`
	Device         string           `json:"device"`
	Threads        int              `json:"threads"`
	Processors     int              `json:"processors"` // processors of the machine
	Warmup         int              `json:"updates_before"`
	Updates        int              `json:"updates_measured"`
	Configurations []benchConfig    `json:"configurations"`
	Sweeps         []*session.Sweep `json:"sweeps"`
	Interrupted    bool             `json:"interrupted"`
}

// benchConfig is a configuration that was measured, and the kind of data used.
type benchConfig struct {
	Name   string `json:"name"`
	System string `json:"system"`
	Data   string `json:"data"` // "own" or "synthetic"
	Why    string `json:"synthetic_because,omitempty"`
}

// Run implements the command.
func (b *benchCmd) Run(a *app) (err error) {
	if err := b.check(); err != nil {
		return err
	}
	d := &benchDocument{
		Schema: benchSchema, Snug: session.Version(), Date: time.Now().UTC().Format(time.DateOnly),
		Warmup: session.BenchWarmup, Updates: b.Updates, Sweeps: []*session.Sweep{},
	}
	err = b.measure(a, d)
	if stopped := a.ctx.Err(); stopped != nil && d.measured() {
		d.Interrupted, err = true, stopped
	}
	if !d.measured() {
		if err == nil && b.Against != "" && !a.asJSON {
			a.printf("\n%s", sweepText(d.Sweeps[0])) // both configurations were at least planned
		}
		return cmp.Or(err, d.nothing())
	}
	if b.Ops && err == nil {
		if a.asJSON {
			err = a.json(d)
		}
		return err
	}
	return errors.Join(err, b.print(a, d))
}

// check rejects incompatible flags before anything is measured.
func (b *benchCmd) check() error {
	switch {
	case b.Shapes && !b.Ops:
		return usage("--shapes: has an effect only with --ops")
	case b.Suite && len(b.Sweep) > 0:
		return usage("--suite is every sweep: leave --sweep out")
	case b.Ops && (b.Suite || len(b.Sweep) > 0 || b.Against != "" || b.Out != ""):
		return usage("--ops measures the one configuration: leave --sweep, --suite, --against and --out out")
	case b.Against != "" && (b.Suite || len(b.Sweep) > 0):
		return usage("--against compares two configurations as they are: leave --sweep and --suite out")
	}
	if b.Out != "" {
		if list, err := os.ReadDir(b.Out); err == nil && len(list) > 0 {
			if _, err := os.Stat(filepath.Join(b.Out, benchFile)); err != nil {
				return usage("--out %s: the folder holds other files; name a new one", b.Out)
			}
		}
	}
	return session.CheckSweeps(b.Sweep)
}

// writable creates the folder of the report and tries to write to it, before minutes are spent on
// measurements.
func (b *benchCmd) writable() error {
	if b.Out == "" {
		return nil
	}
	err := os.MkdirAll(b.Out, 0o777)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(b.Out, ".try-*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return usage("--out: %v", err)
	}
	return nil
}

// benchFile is the name of the document in the folder of a report.
const benchFile = "bench.json"

// measure measures everything requested.
func (b *benchCmd) measure(a *app, d *benchDocument) error {
	each := b.each(a)
	first, err := b.open(a, b.choice, d)
	if err != nil {
		return err
	}
	defer closed(a, first)
	if err := b.writable(); err != nil {
		return err
	}
	if b.Ops {
		s := &session.Sweep{Name: session.SweepVariants, Title: "as configured", Rows: []session.Measured{}}
		d.Sweeps = append(d.Sweeps, s)
		return first.Against(s, "as configured", each)
	}
	if b.Against == "" {
		names := b.Sweep
		switch {
		case b.Suite:
			names = session.Sweeps
		case len(names) == 0:
			names = []string{session.SweepVariants}
		}
		for _, name := range names {
			s, err := first.Sweep(name, each)
			d.Sweeps = append(d.Sweeps, s)
			if err != nil {
				return err
			}
		}
		return nil
	}
	other, err := b.open(a, choice{Preset: b.Against}, d)
	if err != nil {
		return err
	}
	defer closed(a, other)
	s := &session.Sweep{Name: session.SweepAgainst, Title: "one configuration against another", Rows: []session.Measured{}}
	d.Sweeps = append(d.Sweeps, s)
	for i, x := range []*session.Bench{first, other} {
		if err := x.Against(s, d.Configurations[i].Name, each); err != nil {
			return err
		}
	}
	return nil
}

// closed removes what a measurement prepared.
func closed(a *app, b *session.Bench) {
	if err := b.Close(); err != nil {
		a.warning("%v", err)
	}
}

// open resolves a configuration. If data is missing, it uses synthetic batches and reports that.
func (b *benchCmd) open(a *app, c choice, d *benchDocument) (*session.Bench, error) {
	s, err := a.load(c, nil, false)
	if err == nil && !b.Synthetic && s.LacksData() == "" {
		s, err = a.load(c, nil, true) // this time fetching the data
	}
	if err != nil {
		return nil, err
	}
	o, err := s.Bench(a.ctx, session.BenchOptions{Updates: b.Updates, Limit: b.Limit, Synthetic: b.Synthetic, Ops: b.Ops, Shapes: b.Shapes})
	if err != nil {
		return nil, err
	}
	x := benchConfig{Name: name(s), System: s.Config.System, Data: "own", Why: o.Why}
	if o.Why != "" {
		x.Data = "synthetic"
		a.printf("%s: synthetic batches of its own shapes, random weights\n  (%s)\n", x.Name, o.Why)
	}
	d.Device, d.Threads, d.Processors = s.Computer(), s.Threads, s.Host.CPU.Logical
	d.Configurations = append(d.Configurations, x)
	return o, nil
}

// each prints the latest measurement and, with --ops, how its time was spent.
func (b *benchCmd) each(a *app) func(*session.Sweep) {
	seen := map[string]int{} // number of rows printed, by sweep
	return func(s *session.Sweep) {
		if n := len(s.Rows); n == seen[s.Name] {
			k := s.Skipped[len(s.Skipped)-1]
			a.warnf("%s %s: %s\n", s.Name, k.Name, k.Reason)
			return
		}
		seen[s.Name] = len(s.Rows)
		row := &s.Rows[len(s.Rows)-1]
		a.warnf("%s %s: %s\n", s.Name, row.Name, milliseconds(row.Median))
		if b.Ops {
			of := ""
			if row.Shape != "" {
				of = fmt.Sprintf(" of shape %s, which most micro-batches had,", row.Shape)
			}
			a.printf("\n%s%s%s took %.1f ms each with every node timed\n", row.Profile.Table(row.Speed), size.Of(b.Updates, "run"), of, 1e3*row.Traced.Seconds()/float64(b.Updates))
		}
	}
}

// name returns the name of a configuration in the table.
func name(s *session.Setup) string {
	if s.Config.Preset != "" {
		return s.Config.Preset
	}
	return s.Config.System
}

// measured reports whether anything was measured.
func (d *benchDocument) measured() bool {
	for _, s := range d.Sweeps {
		if len(s.Rows) > 0 {
			return true
		}
	}
	return false
}

// quiet is the share of a machine that other programs may use during a measurement without a warning.
const quiet = 0.1

// busy says how much of the machine other programs used during the measurements; empty if next to nothing.
func (d *benchDocument) busy() string {
	var most float64
	for _, s := range d.Sweeps {
		for _, r := range s.Rows {
			most = max(most, r.Others)
		}
	}
	if d.Processors == 0 || most < quiet*float64(d.Processors) {
		return ""
	}
	return fmt.Sprintf("other programs kept up to %.1f of %d processors busy meanwhile: on a quiet machine this is faster, and ratios may be others", most, d.Processors)
}

// nothing returns the reason why nothing was measured.
func (d *benchDocument) nothing() error {
	var refused []string
	for _, s := range d.Sweeps {
		for _, k := range s.Skipped {
			if k.Err != nil {
				return fmt.Errorf("%s: %w", k.Name, k.Err)
			}
		}
		if s.Refused != "" {
			refused = append(refused, s.Name+": "+s.Refused)
		}
	}
	return usage("%s", strings.Join(refused, "\n"))
}

// print prints the document or its tables, and writes the report.
func (b *benchCmd) print(a *app, d *benchDocument) error {
	var err error
	if b.Out != "" {
		err = d.save(b.Out)
	}
	if a.asJSON {
		return errors.Join(err, a.json(d))
	}
	for _, s := range d.Sweeps {
		a.printf("\n%s", sweepText(s))
	}
	a.printf("\n%s, %s; medians of %s after %d (min-max)\n", d.Device, size.Of(d.Threads, "thread"), size.Of(d.Updates, "update"), d.Warmup)
	if busy := d.busy(); busy != "" {
		a.printf("%s\n", busy)
	}
	if b.Out != "" && err == nil {
		a.printf("%s\n", filepath.Join(b.Out, report.FileName))
	}
	return err
}

// save writes the report and the document.
func (d *benchDocument) save(dir string) (err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	home, err := rundir.Look(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, home.Close()) }()
	// The document goes first, because it marks the folder as one of a report.
	return errors.Join(home.ReplaceJSON(benchFile, d), benchPage(d).Save(home))
}
