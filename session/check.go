package session

import (
	"cmp"
	"context"
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

// Check computes one update twice from the same state on the same data, in two
// formats or on two devices.
type Check struct {
	Sources config.Sources
	// Dir is the run directory whose configuration Sources name. If it is empty, Sources name a preset or a
	// file, and Phase is the phase to check, by default the first.
	Dir, Phase string
	Update     int64
	// Precision and Device are what is tried; empty means as configured. Against is the format to trust, on
	// the configured device.
	Precision, Device, Against string
	Factor                     float64 // allowed difference of a row, in multiples of what its format explains
	Fused                      bool    // fused as in training; intermediate results of fused loops are not compared
	OnEvent                    func(Event)
}

// CheckReport is the result of a [Check].
type CheckReport struct {
	Update    int64            `json:"update"`
	From      string           `json:"from"` // a checkpoint, or "the first weights"
	Precision device.Precision `json:"precision"`
	Against   device.Precision `json:"against"`
	// Device is the device tried and AgainstDevice the one trusted; both are absent if they are the same.
	Device        string            `json:"device,omitempty"`
	AgainstDevice string            `json:"against_device,omitempty"`
	Factor        float64           `json:"factor"`
	Clean         bool              `json:"clean"`
	Tried         CheckFigures      `json:"tried"`
	Trusted       CheckFigures      `json:"trusted"`
	Functions     []*compare.Report `json:"functions"`
}

// CheckFigures are one program's figures for the update.
type CheckFigures struct {
	Loss     compare.Number `json:"loss"`
	GradNorm compare.Number `json:"grad_norm"`
}

// Run compares the update and reports the differences.
func (c *Check) Run(ctx context.Context) (report *CheckReport, err error) {
	p, err := c.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	return p.check(ctx, c)
}

// pair is a training program in two formats or on two devices, ready to run the same update twice.
type pair struct {
	*Setup
	trusted, tried *engine.Executable
	against        device.Precision
	origins        []checkpoint.Origin // set for a phase
	other          engine.Backend      // the device to try; Setup.Backend is trusted
	data           *system.Run
	home           *rundir.Dir
	from           *checkpoint.Checkpoint // nil means the initial weights
}

func (p *pair) close() error {
	var errs []error
	for _, r := range []*engine.Executable{p.trusted, p.tried} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	if p.data != nil {
		errs = append(errs, CloseData(p.data))
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
func (c *Check) prepare(ctx context.Context) (p *pair, err error) {
	p = &pair{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	dir, err := c.resolve(ctx, p)
	if err != nil {
		return p, err
	}
	settings, err := p.Settings(p.Precision)
	if err != nil {
		return p, err
	}
	settings = p.chunked(settings, plan.OnHost(p.Host, plan.Rates{}))
	settings.Recompute = pass.RecomputeNone
	for _, f := range []struct {
		to        **engine.Executable
		precision device.Precision
		on        engine.Backend
	}{{&p.trusted, p.against, p.Backend}, {&p.tried, p.Precision, p.other}} {
		if *f.to, err = p.load(settings, f.precision, f.on, c.Fused); err != nil {
			return p, err
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil { // it is the directory of a preset
		return p, err
	}
	if p.home, err = rundir.Look(dir); err != nil {
		return p, err
	}
	p.data, err = p.Data(ctx, system.Env{Dir: p.home, Cache: p.Cache(dir), Position: position(p.from), From: p.origins, Log: silent})
	return p, err
}

// follow finds out whether the run in dir is a phase, and what it was made from.
func (p *pair) follow(dir string) error {
	list, err := checkpoint.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no checkpoints yet
	}
	for _, e := range list {
		if e.Manifest != nil && e.Manifest.Lineage != nil {
			p.ofPhase, p.origins = true, e.Manifest.Lineage.From
			break
		}
	}
	return err
}

// load compiles the training program in a format for a device. If either program must scale the loss, both
// do, so that their gradients can be compared.
func (p *pair) load(settings plan.Settings, precision device.Precision, on engine.Backend, fused bool) (*engine.Executable, error) {
	settings.Precision = precision
	shape := p.shape(settings)
	shape.LossScaling = p.Precision.LossScaling() || p.against.LossScaling()
	traits := on.Traits()
	program, err := engine.CompileTraining(p.Model.Training(shape), engine.CompileOptions{
		Traits: &traits, ComputeDType: plan.ComputeDType(precision), TF32: plan.TF32(precision), Label: true, Skip: func(pass string) bool { return pass == "fuse" && !fused },
	})
	if err != nil {
		return nil, err
	}
	return program.Load(on)
}

// open resolves the configuration with extra settings.
func (c *Check) open(ctx context.Context, extra []config.Override) (*Setup, error) {
	from := c.Sources
	if c.Precision != "" {
		extra = append([]config.Override{{Key: "training.mixed_precision", Text: c.Precision}}, extra...)
	}
	from.Overrides, from.NeedData = Overridden(from.Overrides, extra), true
	return Load(ctx, from, c.OnEvent)
}

// resolve finds the configuration and the checkpoint to start from, and returns the run directory.
func (c *Check) resolve(ctx context.Context, p *pair) (dir string, err error) {
	if p.Setup, err = c.open(ctx, nil); err != nil {
		return "", err
	}
	if dir = c.Dir; dir != "" {
		if c.Phase != "" {
			return dir, usage("--phase %s: is for a preset; of a run in phases, name the folder of the phase", c.Phase)
		}
		if p.from, err = c.before(dir); err == nil {
			err = p.follow(dir)
		}
	} else {
		dir = filepath.Join("runs", "check", p.Config.System+"-"+p.Config.Hash("data"))
		dir, err = c.phase(ctx, p, dir)
	}
	if err != nil {
		return dir, err
	}
	p.against, err = device.ParsePrecision(c.Against)
	if err == nil && p.against == device.Auto {
		err = fmt.Errorf("want fp32, bf16 or fp16")
	}
	if err != nil {
		return dir, usage("--against %s: %v", c.Against, err)
	}
	if p.other = p.Backend; c.Device != "" {
		if p.other, err = p.Open(c.Device); err != nil {
			return dir, usage("--device %s: %v", c.Device, err)
		}
	}
	if p.against == p.Precision && !p.twoDevices() {
		return dir, usage("--precision and --against are both %s: nothing to compare; or name another device with --device", p.Precision)
	}
	if last := int64(p.Config.Training.MaxSteps); c.Update > last {
		return dir, usage("--update %d: the run has %d (training.max_steps)", c.Update, last)
	}
	return dir, nil
}

// phase resolves one phase of a preset that has phases. The phase must not depend on the result of an earlier
// one.
func (c *Check) phase(ctx context.Context, p *pair, dir string) (string, error) {
	var phases []system.Phase
	if p.System.Phases != nil {
		phases = p.System.Phases(p.Config, dir)
	}
	if len(phases) == 0 {
		if c.Phase != "" {
			return dir, usage("--phase %s: %s does not train in phases", c.Phase, cmp.Or(p.Config.Preset, p.Config.System))
		}
		return dir, nil
	}
	k := slices.IndexFunc(phases, func(p system.Phase) bool { return !p.Skip })
	if c.Phase != "" {
		var names []string
		for _, p := range phases {
			names = append(names, p.Name)
		}
		if k = slices.Index(names, c.Phase); k < 0 {
			return dir, usage("--phase %s: the phases are %s", c.Phase, strings.Join(names, ", "))
		}
	}
	if phases[k].Ready != nil {
		if err := phases[k].Ready(); err != nil {
			return dir, fmt.Errorf("%s starts from the results of other phases: train them, then check RUN/%s", phases[k].Name, phases[k].Name)
		}
	}
	var err error
	if p.Setup, err = c.open(ctx, phases[k].Settings); err == nil {
		p.ofPhase = true
	}
	return filepath.Join(dir, phases[k].Name), err
}

// twoDevices reports whether the device to try differs from the one to trust.
func (p *pair) twoDevices() bool { return p.Backend.Name() != p.other.Name() }

// before returns the newest complete checkpoint of the run in dir that precedes the update, or nil if there
// is none.
func (c *Check) before(dir string) (*checkpoint.Checkpoint, error) {
	list, err := checkpoint.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no checkpoints yet
	}
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if e.Update >= c.Update {
			continue
		}
		problem := e.Problem
		if problem == nil {
			var found *checkpoint.Checkpoint
			if found, problem = checkpoint.Load(e.Path); problem == nil {
				return found, nil
			}
		}
		if c.OnEvent != nil {
			c.OnEvent(Info{fmt.Sprintf("checkpoint %s is not used: %v", filepath.Base(e.Path), problem)})
		}
	}
	return nil, nil
}

// check advances the trusted program to the update, runs the update in both programs, and compares them.
func (p *pair) check(ctx context.Context, c *Check) (*CheckReport, error) {
	report := &CheckReport{Update: c.Update, From: "the first weights", Precision: p.Precision, Against: p.against, Factor: c.Factor, Clean: true}
	if p.twoDevices() {
		report.Device, report.AgainstDevice = p.other.Name(), p.Backend.Name()
	}
	job := &train.Job{
		Runner: p.trusted, Loader: p.data.Loader, Updates: c.Update - 1, Seed: p.Config.Training.Seed,
		Schedule: p.Schedule(),
	}
	start, err := p.start(job)
	if err != nil {
		return nil, err
	}
	if p.from != nil {
		report.From = filepath.Base(p.from.Path)
	}
	if start < job.Updates {
		if _, err := job.Run(ctx, start); err != nil {
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
	u, err := p.data.Loader.Next()
	if err != nil {
		return nil, fmt.Errorf("update %d: %w", c.Update, err)
	}
	return report, p.compare(job, &u, c, report)
}

// start loads the initial state of the run into the trusted program.
func (p *pair) start(job *train.Job) (int64, error) {
	if err := p.trusted.Initialize(p.Config.Training.Seed); err != nil {
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
	// A run without a recorded loss scale starts with the initial one.
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

// compare runs the functions of the update in both programs.
func (p *pair) compare(job *train.Job, u *train.Update, c *Check, report *CheckReport) error {
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
			f *CheckFigures
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
