package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
)

// defaultPreset is what a newcomer gets.
const defaultPreset = "quickstart"

// choice is how a verb names a configuration.
type choice struct {
	Preset string `arg:"" optional:"" help:"Preset to start from (default: quickstart, unless --config is given)."`
	Config string `help:"YAML file with settings." placeholder:"FILE" type:"existingfile"`
}

// setup is a configuration resolved for this machine.
type setup struct {
	planning context.Context // its end ends planning
	config   *config.Config
	system   system.System
	model    *system.Model
	host     device.Host
	threads  int
	// on is the device.
	on engine.Backend
	// precision and why it was chosen.
	asked, precision device.Precision
	reason           string
	// rates are the processor's, once they were measured.
	rates *plan.Rates
	// beaten says that training showed a higher peak than is kept.
	beaten bool
	// dump names a pass around which programs are printed to dumpTo.
	dump   string
	dumpTo io.Writer
}

// load resolves the configuration.
func (a *app) load(c choice, extra []config.Override, needData bool) (*setup, error) {
	preset := c.Preset
	if preset == "" && c.Config == "" {
		preset = defaultPreset
	}
	cfg, err := config.Load(config.Sources{
		Systems: knownSystems(), Presets: configs.FS, Preset: preset, File: c.Config,
		Overrides: overridden(a.overrides, extra), NeedData: needData, Fetch: a.fetch(needData),
	})
	if err != nil {
		return nil, err
	}
	a.warn(cfg.Warnings)
	return a.resolved(cfg)
}

// warn tells the warnings of a configuration, each once, though every phase of
// a run loads it again.
func (a *app) warn(warnings []config.Problem) {
	for _, w := range warnings {
		if text := w.String(); !slices.Contains(a.warned, text) {
			a.warned = append(a.warned, text)
			a.warning("%s", text)
		}
	}
}

// overridden are the settings of given and of extra, which wins.
func overridden(given, extra []config.Override) []config.Override {
	out := slices.DeleteFunc(slices.Clone(given), func(o config.Override) bool {
		return slices.ContainsFunc(extra, func(e config.Override) bool { return e.Key == o.Key })
	})
	return append(out, extra...)
}

// resolved prepares a configuration for this machine.
func (a *app) resolved(cfg *config.Config) (*setup, error) {
	s := &setup{planning: a.ctx, config: cfg, host: device.DetectHost(), system: systemOf(cfg)}
	err := s.resolve()
	if err == nil {
		s.model, err = s.system.Describe(cfg)
	}
	if kind := cfg.Training.LRScheduler; err == nil && kind == string(train.Noam) && s.model.Width == 0 {
		err = usage("training.lr_scheduler: noam scales the rate by the width of the model, and a model of %s has no one width: want constant, linear, cosine or plateau", cfg.System)
	}
	return s, err
}

// resolve decides what the configuration left open.
func (s *setup) resolve() error {
	hw := &s.config.Hardware
	s.threads = hw.Threads
	if s.threads == 0 {
		s.threads = s.host.CPU.Threads
		if err := s.config.Derive("hardware.threads", fmt.Sprint(s.threads), "the cores this process may use"); err != nil {
			return err
		}
	}
	var err error
	if s.on, err = s.open(hw.Device); err != nil {
		return err
	}
	t := &s.config.Training
	if s.asked, err = device.ParsePrecision(t.MixedPrecision); err != nil {
		return err
	}
	if s.precision, s.reason, err = device.ChoosePrecision(s.asked, &s.host.CPU); err != nil {
		return err
	}
	if s.asked == device.Auto {
		t.MixedPrecision = string(s.precision)
		return s.config.Derive("training.mixed_precision", t.MixedPrecision, s.reason)
	}
	return nil
}

// open is a device with the configured threads and kernels.
func (s *setup) open(name string) (engine.Backend, error) {
	kernels := s.config.Hardware.CPUISA
	if kernels == "auto" {
		kernels = "" // what SNUG_CPU_ISA says
	}
	return backend.Open(backend.Options{Device: name, Threads: s.threads, Kernels: kernels})
}

// settings are the configured ones, for a target of the given precision.
func (s *setup) settings(precision device.Precision) (plan.Settings, error) {
	mode, err := pass.ParseRecompute(s.config.Training.GradientCheckpointing)
	shape := s.model.Shape
	return plan.Settings{
		MicroBatch: shape.MicroBatch, Accumulation: shape.Accumulation, CEChunk: shape.CEChunk,
		Recompute: mode, Precision: precision,
	}, err
}

// shape is what settings mean for the model.
func shape(c plan.Settings) system.Shape {
	return system.Shape{
		MicroBatch: c.MicroBatch, Accumulation: c.Accumulation, CEChunk: c.CEChunk,
		LossScaling: c.Precision.LossScaling(),
	}
}

// compile makes the training program for settings; price is [engine.CompileOptions]'s.
func (s *setup) compile(c plan.Settings, t engine.Traits, price func(*graph.Node) float64) (*engine.Program, error) {
	return engine.CompileTraining(s.model.Training(shape(c)), engine.CompileOptions{
		Traits: &t, ComputeDType: plan.ComputeDType(c.Precision), Recompute: c.Recompute, Budget: c.Budget, Price: price, Dump: s.dump, To: s.dumpTo, Context: s.planning,
	})
}

// compileEvaluation makes the program that evaluates as the training program
// does, in the same bits, without what training keeps besides.
func (s *setup) compileEvaluation() (*engine.Program, error) {
	c, err := s.settings(s.precision)
	if err != nil {
		return nil, err
	}
	t := plan.OnHost(s.host, plan.Rates{})
	if err := s.model.Least.Check(c, t, s.model.LeastRows); err != nil {
		return nil, err
	}
	c = s.chunked(c, t)
	return engine.CompileEvaluation(s.model.Training(shape(c)), engine.CompileOptions{ComputeDType: plan.ComputeDType(c.Precision)})
}

// chunked are settings with the rows of the loss decided where that was left open.
func (s *setup) chunked(c plan.Settings, t plan.Target) plan.Settings {
	if c.CEChunk == 0 {
		c.CEChunk = min(t.LossChunk(c.Precision, s.model.Classes), c.MicroBatch*int(s.model.UnitsPerRow))
	}
	return c
}

// cache is where the prepared data of the run in dir lies.
func (s *setup) cache(dir string) string {
	if d := s.config.Data.CacheDir; d != "" {
		return d
	}
	return filepath.Join(dir, "data")
}

// ready loads a program to run on data, with the weights that training starts
// from: random ones, and over them what the system loads. What a checkpoint
// holds comes over these.
func (s *setup) ready(p *engine.Program, d *system.Run) (*engine.Executable, error) {
	r, err := p.Load(s.on)
	if err != nil {
		return nil, err
	}
	if err = r.Initialize(s.config.Training.Seed); err == nil && d.Load != nil {
		err = d.Load(r)
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// computer names what computes.
func (s *setup) computer() string {
	if s.on.Traits().Name == engine.CPU.Name {
		return s.host.CPU.String()
	}
	return s.on.Name()
}

// hostTarget is this machine as a target, with the processor's speed measured.
func (s *setup) hostTarget() (plan.Target, error) {
	if s.rates == nil {
		r, err := ratesFolder().calibrated(s.processor(), backend.CPU(s.threads))
		if err != nil {
			return plan.Target{}, err
		}
		s.rates = &r
	}
	t := plan.OnHost(s.host, *s.rates)
	t.Traits = s.on.Traits()
	t.Budget = int64(s.config.Hardware.MemoryBudget)
	return t, nil
}

// planner plans the model for a target.
func (s *setup) planner(t plan.Target) *plan.Planner {
	return &plan.Planner{
		Compile: func(c plan.Settings) (*engine.Program, error) {
			return s.compile(c, t.Traits, t.Speed(c.Precision).Seconds)
		},
		Facts:  func(p *engine.Program, c plan.Settings) (plan.Run, error) { return s.facts(p, t, c, 0) },
		Target: t, LeastMicroBatch: s.model.LeastRows, Least: s.model.Least, Classes: s.model.Classes,
	}
}

// facts are what a plan must know of a run; data is the size of mapped files.
func (s *setup) facts(p *engine.Program, t plan.Target, c plan.Settings, data int64) (plan.Run, error) {
	r := plan.Run{Settings: c}
	if s.model.Unit == "tokens" {
		r.Tokens = int64(c.MicroBatch) * s.model.UnitsPerRow
	}
	if t.Card != nil {
		return r, nil
	}
	var err error
	r.Workspace, err = s.on.Workspace(p)
	r.Staging, r.Data = train.StagingBytes(p), data
	return r, err
}

// fit plans the configured settings for a target; settings that were left to
// the planner are decided here.
func (s *setup) fit(t plan.Target, precision device.Precision) (*plan.Report, *engine.Program, error) {
	c, err := s.settings(precision)
	if err != nil {
		return nil, nil, err
	}
	c = s.chunked(c, t)
	pl := s.planner(t)
	report, err := pl.Check(c)
	if err != nil {
		return report, nil, err
	}
	p, err := pl.Program(report.Run.Settings)
	return report, p, err
}
