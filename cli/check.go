package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/compare"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

type checkCmd struct {
	Target    string  `arg:"" name:"run" help:"Run directory, preset, or YAML file with settings."`
	Update    int64   `help:"The update to run twice." default:"1" placeholder:"N" min:"1" of:"updates"`
	Precision string  `help:"The format to try: bf16, fp16 or fp32 (default: the configured one)." placeholder:"FORMAT"`
	Against   string  `help:"The format to trust, which the updates before are done in." default:"fp32" placeholder:"FORMAT"`
	Device    string  `help:"The device to try, cpu or reference (default: the configured one, which is the one to trust)." placeholder:"DEVICE"`
	Factor    float64 `help:"How many times what its format explains a row may differ." default:"8"`
	Fused     bool    `help:"Compare the programs as they train, where results within a fused loop are not seen."`
	Phase     string  `help:"Of a preset that trains in phases: the folder of the one to check (default: the first)." placeholder:"NAME"`
}

// Help implements kong.HelpProvider.
func (checkCmd) Help() string {
	return `Runs one update twice from the same state on the same data, in two formats or on two
devices, and names the first operations, layers and rows whose results differ by more
than the format explains (docs/check.md has the rule). A run goes forward from its newest
checkpoint before the update, a preset from its first weights; the updates before
are done in the format and on the device that are trusted. Nothing is saved but prepared data, that of
a preset in runs/check.

Exit codes: 0 nothing differs by more than its format explains, 1 something does,
or the check failed, 2 wrong usage.

Examples:
  snug check quickstart --update 20 --precision bf16
  snug check runs/quickstart --update 300 --precision fp16 --against bf16 --json
  snug check small.yaml --device reference --precision fp32`
}

// checkReport is what --json prints.
type checkReport struct {
	Update    int64            `json:"update"`
	From      string           `json:"from"` // a checkpoint, or "the first weights"
	Precision device.Precision `json:"precision"`
	Against   device.Precision `json:"against"`
	// Device is tried, AgainstDevice trusted; absent where both are the same.
	Device        string            `json:"device,omitempty"`
	AgainstDevice string            `json:"against_device,omitempty"`
	Factor        float64           `json:"factor"`
	Clean         bool              `json:"clean"`
	Tried         checkFigures      `json:"tried"`
	Trusted       checkFigures      `json:"trusted"`
	Functions     []*compare.Report `json:"functions"`
}

// checkFigures are what a program says of the update.
type checkFigures struct {
	Loss     compare.Number `json:"loss"`
	GradNorm compare.Number `json:"grad_norm"`
}

// errDiffers ends a check that found something.
var errDiffers = errors.New("results differ by more than their formats explain")

// Run implements the verb.
func (c *checkCmd) Run(a *app) (err error) {
	if c.Update < 1 {
		return usage("--update %d: want 1 or more", c.Update)
	}
	if !(c.Factor >= 1) {
		return usage("--factor %v: want 1 or more", c.Factor)
	}
	p, err := c.prepare(a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	report, err := p.check(a, c)
	if err != nil {
		return err
	}
	if a.asJSON {
		err = a.json(report)
	} else {
		report.print(a)
	}
	if err == nil && !report.Clean {
		err = errDiffers
	}
	return err
}

// pair is a training program in two formats or on two devices, ready to run the same update.
type pair struct {
	*setup
	trusted, tried *engine.Executable
	against        device.Precision
	other          engine.Backend // the device to try; [setup.on] is trusted
	data           *system.Run
	home           *rundir.Dir
	from           *checkpoint.Checkpoint // nil: the first weights
}

func (p *pair) close() error {
	var errs []error
	for _, r := range []*engine.Executable{p.trusted, p.tried} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	if p.data != nil {
		errs = append(errs, closeData(p.data))
	}
	if p.home != nil {
		errs = append(errs, p.home.Close())
	}
	if p.from != nil {
		errs = append(errs, p.from.Close())
	}
	return errors.Join(errs...)
}

// prepare compiles and loads both programs and opens the data.
func (c *checkCmd) prepare(a *app) (p *pair, err error) {
	p = &pair{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	dir, err := c.resolve(a, p)
	if err != nil {
		return p, err
	}
	settings, err := p.settings(p.precision)
	if err != nil {
		return p, err
	}
	settings = p.chunked(settings, plan.OnHost(p.host, plan.Rates{}))
	settings.Recompute = pass.RecomputeNone
	for _, f := range []struct {
		to        **engine.Executable
		precision device.Precision
		on        engine.Backend
	}{{&p.trusted, p.against, p.on}, {&p.tried, p.precision, p.other}} {
		if *f.to, err = p.load(settings, f.precision, f.on, c.Fused); err != nil {
			return p, err
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil { // a preset's
		return p, err
	}
	if p.home, err = rundir.Look(dir); err != nil {
		return p, err
	}
	p.data, err = p.system.Open(a.ctx, p.config, p.model, system.Env{Dir: p.home, Cache: p.cache(dir), Position: position(p.from), Log: func(string, ...any) {}})
	return p, err
}

// load compiles the training program in a format for a device. Both programs scale the loss
// if one of them must, so that their gradients can be compared.
func (p *pair) load(settings plan.Settings, precision device.Precision, on engine.Backend, fused bool) (*engine.Executable, error) {
	settings.Precision = precision
	shape := shape(settings)
	shape.LossScaling = p.precision.LossScaling() || p.against.LossScaling()
	traits := on.Traits()
	program, err := engine.CompileTraining(p.model.Training(shape), engine.CompileOptions{
		Traits: &traits, ComputeDType: plan.ComputeDType(precision), Label: true, Skip: func(pass string) bool { return pass == "fuse" && !fused },
	})
	if err != nil {
		return nil, err
	}
	return program.Load(on)
}

// resolve finds the configuration and the checkpoint to start from, and gives
// the run directory.
func (c *checkCmd) resolve(a *app, p *pair) (dir string, err error) {
	formats := []config.Override{}
	if c.Precision != "" {
		formats = append(formats, config.Override{Key: "training.mixed_precision", Text: c.Precision})
	}
	file := filepath.Join(c.Target, checkpoint.ConfigFile)
	if _, err := os.Stat(file); err == nil {
		if dir, err = a.runWithModel(c.Target); err != nil {
			return dir, err
		}
		file = filepath.Join(dir, checkpoint.ConfigFile)
		if p.setup, err = a.load(choice{Config: file}, formats, true); err != nil {
			return dir, err
		}
		if p.from, err = before(a, dir, c.Update); err != nil {
			return dir, err
		}
	} else if p.setup, dir, err = c.preset(a, formats); err != nil {
		return dir, err
	}
	p.against, err = device.ParsePrecision(c.Against)
	if err == nil && p.against == device.Auto {
		err = fmt.Errorf("want fp32, bf16 or fp16")
	}
	if err != nil {
		return dir, usage("--against %s: %v", c.Against, err)
	}
	if p.other = p.on; c.Device != "" {
		if p.other, err = p.open(c.Device); err != nil {
			return dir, usage("--device %s: %v", c.Device, err)
		}
	}
	if p.against == p.precision && !p.twoDevices() {
		return dir, usage("--precision and --against are both %s: nothing to compare; or name another device with --device", p.precision)
	}
	if last := int64(p.config.Training.MaxSteps); c.Update > last {
		return dir, usage("--update %d: the run has %d (training.max_steps)", c.Update, last)
	}
	return dir, nil
}

// twoDevices reports whether the device to try is not the one to trust.
func (p *pair) twoDevices() bool { return p.on.Name() != p.other.Name() }

// preset resolves a preset, or one of its phases, which trains on nothing that
// an earlier one leaves.
func (c *checkCmd) preset(a *app, formats []config.Override) (s *setup, dir string, err error) {
	from := choice{Preset: c.Target}
	if ext := filepath.Ext(c.Target); ext == ".yaml" || ext == ".yml" {
		from = choice{Config: c.Target}
	}
	if s, err = a.load(from, formats, true); err != nil {
		return nil, "", err
	}
	dir = filepath.Join("runs", "check", s.config.System+"-"+s.config.Hash("data"))
	if s.system.Phases == nil {
		return s, dir, nil
	}
	phases := s.system.Phases(s.config, dir)
	if len(phases) == 0 {
		return s, dir, nil
	}
	k := 0
	if c.Phase != "" {
		var names []string
		for _, p := range phases {
			names = append(names, p.Name)
		}
		if k = slices.Index(names, c.Phase); k < 0 {
			return nil, "", usage("--phase %s: the phases are %s", c.Phase, strings.Join(names, ", "))
		}
	}
	if phases[k].Ready != nil {
		if err := phases[k].Ready(); err != nil {
			return nil, "", fmt.Errorf("%s starts from what other phases leave: train them, then check RUN/%s", phases[k].Name, phases[k].Name)
		}
	}
	s, err = a.load(from, overridden(formats, phases[k].Settings), true)
	return s, filepath.Join(dir, phases[k].Name), err
}

// before is the newest whole checkpoint of the run in dir from which update
// still lies ahead; nil if there is none.
func before(a *app, dir string, update int64) (*checkpoint.Checkpoint, error) {
	list, err := checkpoint.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no checkpoints yet
	}
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if e.Update >= update {
			continue
		}
		problem := e.Problem
		if problem == nil {
			var c *checkpoint.Checkpoint
			if c, problem = checkpoint.Load(e.Path); problem == nil {
				return c, nil
			}
		}
		a.warnf("checkpoint %s is not used: %v\n", filepath.Base(e.Path), problem)
	}
	return nil, nil
}

// check brings the trusted program to the update, runs it in both and compares.
func (p *pair) check(a *app, c *checkCmd) (*checkReport, error) {
	report := &checkReport{Update: c.Update, From: "the first weights", Precision: p.precision, Against: p.against, Factor: c.Factor, Clean: true}
	if p.twoDevices() {
		report.Device, report.AgainstDevice = p.other.Name(), p.on.Name()
	}
	job := &train.Job{
		Runner: p.trusted, Feed: p.data.Feed, Updates: c.Update - 1, Seed: p.config.Training.Seed,
		Schedule: (&run{setup: p.setup}).schedule(),
	}
	start, err := p.start(job)
	if err != nil {
		return nil, err
	}
	if p.from != nil {
		report.From = filepath.Base(p.from.Path)
	}
	if start < job.Updates {
		if _, err := job.Run(a.ctx, start); err != nil {
			return nil, err
		}
	}
	for _, s := range p.tried.Program().States {
		t, err := p.trusted.State(s.Name)
		if err != nil {
			return nil, err
		}
		if err := p.tried.SetState(t); err != nil {
			return nil, err
		}
	}
	u, err := p.data.Feed.Next()
	if err != nil {
		return nil, fmt.Errorf("update %d: %w", c.Update, err)
	}
	return report, p.compare(job, &u, c, report)
}

// start puts the state that the run begins with into the trusted program.
func (p *pair) start(job *train.Job) (int64, error) {
	if err := p.trusted.Initialize(p.config.Training.Seed); err != nil {
		return 0, err
	}
	if p.data.Load != nil {
		if err := p.data.Load(p.trusted); err != nil {
			return 0, err
		}
	}
	if p.from == nil {
		return 0, nil
	}
	// A run that had no loss scale starts with its first.
	scaled := false
	if p.from.Optimizer != nil {
		_, err := p.from.Optimizer.Tensor(engine.StateScale)
		scaled = err == nil
	}
	err := train.LoadSome(p.trusted, p.from, func(s *graph.State) bool {
		return train.Saved(s) && (scaled || s.Name != engine.StateScale && s.Name != engine.StateGood)
	})
	if err != nil {
		return 0, err
	}
	return job.Restore(p.from)
}

// compare runs the functions of the update.
func (p *pair) compare(job *train.Job, u *train.Update, c *checkCmd, report *checkReport) error {
	options := compare.Options{Factor: c.Factor}
	each := func(fn string, m int) error {
		r, err := compare.Run(p.trusted, p.tried, fn, 0, options)
		if err != nil {
			return err
		}
		r.Micro = m
		report.Functions = append(report.Functions, r)
		report.Clean = report.Clean && len(r.Findings) == 0 && r.Unjudged == 0
		for _, s := range []struct {
			r *engine.Executable
			f *checkFigures
		}{{p.trusted, &report.Trusted}, {p.tried, &report.Tried}} {
			for _, o := range []struct {
				name string
				to   *compare.Number
			}{{engine.OutputLoss, &s.f.Loss}, {engine.OutputGradNorm, &s.f.GradNorm}} {
				if s.r.Program().Func(fn).F.Output(o.name) == nil {
					continue
				}
				x, err := s.r.OutputF32(fn, o.name)
				if err != nil {
					return err
				}
				*o.to += compare.Number(x[0]) // the loss is the sum over the micro-batches
			}
		}
		return nil
	}
	fn := engine.FuncStep
	if p.tried.Program().Func(engine.FuncUpdate) != nil {
		fn = engine.FuncMicro
	}
	for m := range u.Micro {
		if err := job.Prepare(train.Inputs{Runner: p.trusted}, u, c.Update-1, m); err != nil {
			return err
		}
		for _, v := range p.tried.Program().Inputs {
			to, _ := p.tried.Input(0, v.Name)
			from, _ := p.trusted.Input(0, v.Name)
			copy(to.Data, from.Data)
		}
		if err := each(engine.Variant(fn, u.Variant(m)), m); err != nil {
			return err
		}
	}
	if fn == engine.FuncMicro {
		return each(engine.FuncUpdate, 0)
	}
	return nil
}

// on names a format and the device, if that says more.
func on(p device.Precision, name string) string {
	if name == "" {
		return string(p)
	}
	return fmt.Sprintf("%s on %s", p, name)
}

// print tells people what was found.
func (r *checkReport) print(a *app) {
	a.printf("update %d from %s, %s against %s\n", r.Update, r.From, on(r.Precision, r.Device), on(r.Against, r.AgainstDevice))
	a.printf("  %-6s loss %-10.6g gradient norm %.6g\n", on(r.Precision, r.Device), float64(r.Tried.Loss), float64(r.Tried.GradNorm))
	a.printf("  %-6s loss %-10.6g gradient norm %.6g\n", on(r.Against, r.AgainstDevice), float64(r.Trusted.Loss), float64(r.Trusted.GradNorm))
	for _, f := range r.Functions {
		name := f.Func
		if strings.HasPrefix(f.Func, engine.FuncMicro) {
			name = fmt.Sprintf("%s %d", f.Func, f.Micro+1)
		}
		a.printf("%s: %d values compared, %d with more than their format explains", name, f.Compared, len(f.Findings))
		for _, s := range []struct {
			n    int
			what string
		}{{f.Cleared, "right for what they were given"}, {f.Only, "in one program only"}, {f.Unjudged, "more not looked into"}} {
			if s.n > 0 {
				a.printf("; %d %s", s.n, s.what)
			}
		}
		a.printf("\n")
		for i, x := range f.Findings {
			if i == mostFindings {
				a.printf("  and %d more (--json has all)\n", len(f.Findings)-i)
				break
			}
			a.printf("%v", x)
		}
		a.printf("  the widest differences, by the middle row:\n")
		for _, w := range f.Widest {
			half := "forward"
			if w.Backward {
				half = "backward"
			}
			a.printf("    %-8.2g (worst %.2g)  %s of layer %s, %s\n", float64(w.Middle), float64(w.Worst), w.Op, w.Layer, half)
		}
	}
}

// mostFindings are printed; later ones are mostly consequences.
const mostFindings = 8
