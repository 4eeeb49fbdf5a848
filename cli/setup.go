package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/system"
)

// choice is how a verb names a configuration.
type choice struct {
	Preset string `arg:"" optional:"" help:"Preset to start from (default: quickstart, unless --config is given)."`
	Config string `help:"YAML file with settings." placeholder:"FILE" type:"existingfile"`
}

// setup is a configuration resolved for this machine.
type setup struct {
	config  *config.Config
	system  system.System
	model   *system.Model
	host    device.Host
	threads int
	// precision and why it was chosen.
	precision device.Precision
	reason    string
}

// load resolves the configuration.
func (a *app) load(c choice, extra []config.Override, needData bool) (*setup, error) {
	preset := c.Preset
	if preset == "" && c.Config == "" {
		preset = "quickstart"
	}
	cfg, err := config.Load(config.Sources{
		Systems: knownSystems(), Presets: configs.FS, Preset: preset, File: c.Config,
		Overrides: append(slices.Clone(a.overrides), extra...), NeedData: needData,
	})
	if err != nil {
		return nil, err
	}
	return resolved(cfg)
}

// resolved prepares a configuration for this machine.
func resolved(cfg *config.Config) (*setup, error) {
	s := &setup{config: cfg, host: device.DetectHost(), system: systemOf(cfg)}
	err := s.resolve()
	if err == nil {
		s.model, err = s.system.Describe(cfg)
	}
	return s, err
}

// resolve decides what the configuration left open.
func (s *setup) resolve() error {
	hw := &s.config.Hardware
	if strings.HasPrefix(hw.Device, "cuda") {
		return fmt.Errorf("hardware.device %s: this build trains on the CPU only; use cpu or auto (`snug doctor` shows what was found)", hw.Device)
	}
	s.threads = hw.Threads
	if s.threads == 0 {
		s.threads = s.host.CPU.Threads
		if err := s.config.Derive("hardware.threads", fmt.Sprint(s.threads), "the cores this process may use"); err != nil {
			return err
		}
	}
	t := &s.config.Training
	asked, err := device.ParsePrecision(t.MixedPrecision)
	if err != nil {
		return err
	}
	if s.precision, s.reason, err = device.ChoosePrecision(asked, &s.host.CPU); err != nil {
		return err
	}
	if asked == device.Auto {
		t.MixedPrecision = string(s.precision)
		return s.config.Derive("training.mixed_precision", t.MixedPrecision, s.reason)
	}
	return nil
}

// low is the 16-bit format of a precision.
func low(p device.Precision) graph.DType {
	switch p {
	case device.BF16:
		return graph.BF16
	case device.FP16:
		return graph.F16
	}
	return graph.F32
}

// budget is how many bytes the run may take.
func (s *setup) budget() int64 {
	if b := int64(s.config.Hardware.MemoryBudget); b > 0 {
		return b
	}
	return s.host.Memory.Usable()
}

// compile compiles the training program in a shape.
func (s *setup) compile(shape system.Shape) (*engine.Program, error) {
	mode, err := pass.ParseRecompute(s.config.Training.GradientCheckpointing)
	if err != nil {
		return nil, err
	}
	o := engine.CompileOptions{Low: low(s.precision)}
	if mode != pass.RecomputeAuto {
		o.Recompute = mode
		return engine.CompileTraining(s.model.Training(shape), o)
	}
	p, err := engine.CompileTraining(s.model.Training(shape), o)
	if err != nil || p.Layout.Bytes <= s.budget() {
		return p, err
	}
	o.Recompute, o.Budget = pass.RecomputeAuto, s.budget()-(p.Layout.Bytes-p.Layout.Temps.Bytes)
	return engine.CompileTraining(s.model.Training(shape), o)
}
