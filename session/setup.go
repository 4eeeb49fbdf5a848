package session

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/dist/nccl"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
)

// Setup is a configuration resolved for this machine: what is trained, on what
// device, in which precision.
type Setup struct {
	Config *config.Config
	System system.System
	Model  *system.Model
	Host   device.Host
	// Threads are those of the processor that are computed with.
	Threads int
	// World is the number of processes of the run, 0 where this one is alone, and Rank its
	// number; Local is its place among those that share the machine.
	World   int
	Rank    int
	Local   Local
	Backend engine.Backend
	// Card is the card that is computed on; nil: the processor is.
	Card *device.Card
	// Notes are messages about the choice of the device; Chosen is why a card was taken, where there
	// are several.
	Notes  []string
	Chosen string
	// warn takes what the device has to say later; nil: nobody listens yet.
	warn func(text string)
	// Precision is in force, Asked what the configuration said, and Reason why they
	// differ.
	Asked, Precision device.Precision
	Reason           string
	// EpochUnits is how many tokens (examples) of training data plans take for an
	// epoch; 0: as many as prepared data has.
	EpochUnits int64

	// ofPhase means that the run is a phase of a run in phases.
	ofPhase bool
	// slices are those that the blocks of a resumed run were computed in, which the planner
	// does not choose anew: the sums of their gradients depend on it. 0: none.
	slices   int
	planning context.Context // its end ends planning
	// nccl is the library that hardware.exchange names, or one that is installed.
	nccl func() (*nccl.Library, error)
	// cache is what planning compiled; nil: each planner has its own.
	cache *engine.Cache
	// rates are the processor's, once they were measured.
	rates *plan.Rates
	// beaten means that training showed a higher peak than is kept.
	beaten bool
	// dump names a pass around which programs are printed to dumpTo.
	dump   string
	dumpTo io.Writer
}

// Load reads a configuration, that of [DefaultPreset] where none is named, and
// resolves it for this machine; systems and presets are filled in. Warnings about it go
// to onEvent, which may be nil.
func Load(ctx context.Context, from config.Sources, onEvent func(Event)) (*Setup, error) {
	return loadAs(ctx, from, Local{}, false, onEvent)
}

// LoadElsewhere is [Load] for plans for other chips than this machine's, which need not
// compute in the configured precision. processes on each of machines share a run; 0: one
// process is alone.
func LoadElsewhere(ctx context.Context, from config.Sources, processes, machines int, onEvent func(Event)) (*Setup, error) {
	s, err := loadAs(ctx, from, Local{World: processes}, true, onEvent)
	if err == nil {
		s.World = processes * machines
	}
	return s, err
}

// LoadShared is [Load] for a run of processes on machines of this kind, perMachine on each,
// of which this process is taken for one.
func LoadShared(ctx context.Context, from config.Sources, perMachine, machines int, onEvent func(Event)) (*Setup, error) {
	s, err := loadAs(ctx, from, Local{World: perMachine}, false, onEvent)
	if err == nil {
		s.World = perMachine * machines
	}
	return s, err
}

func loadAs(ctx context.Context, from config.Sources, local Local, elsewhere bool, onEvent func(Event)) (*Setup, error) {
	from, err := Respelled(from, onEvent)
	if err != nil {
		return nil, err
	}
	c, err := config.Load(from)
	if err != nil {
		return nil, err
	}
	if onEvent != nil {
		for _, w := range c.Warnings {
			onEvent(train.Warned{Text: w.String()})
		}
	}
	s, err := resolveAs(ctx, c, local, elsewhere)
	if err == nil && onEvent != nil {
		if s.Chosen != "" {
			onEvent(Info{s.Chosen})
		}
		s.warn = func(text string) { onEvent(train.Warned{Text: text}) }
		for _, n := range s.Notes {
			s.warn(n)
		}
	}
	return s, err
}

// Respelled translates settings that were typed under other programs' names. What each was taken as
// goes to onEvent, which may be nil.
func Respelled(from config.Sources, onEvent func(Event)) (config.Sources, error) {
	from.Systems, from.Presets = Configs(), configs.FS
	if from.Preset == "" && from.File == "" {
		from.Preset = DefaultPreset
	}
	from, took, err := config.Respell(from)
	if onEvent != nil {
		for _, w := range took {
			onEvent(train.Warned{Text: w.String()})
		}
	}
	return from, err
}

// Overridden are the settings of given and of extra, which wins.
func Overridden(given, extra []config.Override) []config.Override {
	out := slices.DeleteFunc(slices.Clone(given), func(o config.Override) bool {
		return slices.ContainsFunc(extra, func(e config.Override) bool { return e.Key == o.Key })
	})
	return append(out, extra...)
}

// Resolve prepares a configuration for this machine. The end of ctx ends planning.
func Resolve(ctx context.Context, cfg *config.Config) (*Setup, error) {
	return resolveAs(ctx, cfg, Local{}, false)
}

func resolveAs(ctx context.Context, cfg *config.Config, local Local, elsewhere bool) (*Setup, error) {
	host := device.DetectHost()
	s := &Setup{planning: ctx, Config: cfg, Host: host.Shared(local.World), Local: local, System: SystemOf(cfg)}
	switch local.Processors {
	case OfAll:
		s.Host.CPU.Threads = max(1, host.CPU.Threads/max(1, local.World))
	case OfOne:
		s.Host.CPU.Threads = host.CPU.Threads
	}
	s.nccl = sync.OnceValues(func() (*nccl.Library, error) {
		_, path := over(cfg.Hardware.Exchange)
		return FindNCCL(path)
	})
	err := s.resolve(elsewhere)
	if err == nil {
		s.Model, err = s.System.Describe(cfg)
	}
	if err == nil {
		optimizer := s.Model.Training(s.Model.Shape).Optimizer
		s.Model.Least = s.Model.Least.With(optimizer.LeastBytes())
	}
	if kind := cfg.Training.LRScheduler; err == nil && kind == string(train.Noam) && s.Model.Width == 0 {
		err = usage("training.lr_scheduler: noam scales the rate by the width of the model, and a model of %s has no one width: want constant, linear, cosine or plateau", cfg.System)
	}
	return s, err
}

// resolve decides what the configuration left open. elsewhere: a precision that this
// machine lacks is no error.
func (s *Setup) resolve(elsewhere bool) error {
	hw := &s.Config.Hardware
	s.Threads = hw.Threads
	if s.Threads == 0 {
		s.Threads = s.Host.CPU.Threads
		if err := s.Config.Derive("hardware.threads", fmt.Sprint(s.Threads), "the cores this process may use"); err != nil {
			return err
		}
	}
	if most := max(16, 4*runtime.NumCPU()); s.Threads > most && !elsewhere { // workers that wait do not give way
		return usage("hardware.threads: %d threads would wait for each other on the %s of this machine: want at most %d, or 0 for the cores this process may use", s.Threads, size.Of(runtime.NumCPU(), "processor"), most)
	}
	t := &s.Config.Training
	var err error
	if s.Asked, err = device.ParsePrecision(t.MixedPrecision); err != nil {
		return err
	}
	o := s.device(hw.Device)
	if !elsewhere {
		o.Precision, o.Fits = s.Asked, s.fits
	}
	if s.Backend, err = backend.Open(o); err != nil {
		return err
	}
	if s.Card, _, err = backend.CardOf(s.Backend); err != nil {
		return err
	}
	if s.Precision, s.Reason, err = device.ChoosePrecision(s.Asked, s.own()); err != nil && elsewhere {
		s.Precision, s.Reason, err = device.ChoosePrecision(device.Auto, s.own())
	}
	if err != nil {
		return err
	}
	if s.Asked == device.Auto {
		t.MixedPrecision = string(s.Precision)
		return s.Config.Derive("training.mixed_precision", t.MixedPrecision, s.Reason)
	}
	return nil
}

// Open is a device with the configured threads and kernels.
func (s *Setup) Open(name string) (engine.Backend, error) { return backend.Open(s.device(name)) }

// device are the options of a device with the configured threads and kernels.
func (s *Setup) device(name string) backend.Options {
	kernels := string(s.Config.Hardware.CPUISA)
	if kernels == "auto" {
		kernels = "" // the value of SNUG_CPU_ISA
	}
	note := func(text string) {
		if s.warn != nil {
			s.warn(text)
			return
		}
		s.Notes = append(s.Notes, text)
	}
	return backend.Options{
		Device: name, Threads: s.Threads, Kernels: kernels, Rank: s.Local.Rank, Ranks: s.Local.World, BLAS: s.Config.Hardware.BLAS, NoCublas: s.Config.Hardware.Cublas == "off",
		Chosen: func(why string) { s.Chosen = why }, Note: note,
	}
}

// fits reports whether the configured training fits a card that was not opened.
func (s *Setup) fits(c backend.Candidate) (bool, error) {
	precision, _, err := device.ChoosePrecision(s.Asked, c.Card)
	if err != nil {
		return false, nil // that it cannot compute in it is said when it is chosen
	}
	if s.Model, err = s.System.Describe(s.Config); err != nil {
		return false, err
	}
	t := plan.OnCard(c.Card, backend.Lower(c.Card))
	if c.Free >= 0 {
		t.Memory = min(t.Memory, c.Free)
	}
	t.Budget, t.HostMemory = int64(s.Config.Hardware.MemoryBudget), cmp.Or(int64(s.Config.Hardware.HostMemory), s.Host.Memory.Free())
	settings, err := s.Settings(precision)
	if err != nil {
		return false, err
	}
	report, err := s.Planner(t).Plan(s.chunked(settings, t))
	if err != nil {
		return false, err
	}
	return report.Fits, nil
}

// Computer names what computes.
func (s *Setup) Computer() string {
	if s.Backend.Traits().Name == engine.CPU.Name {
		return s.Host.CPU.String()
	}
	return s.Backend.Name()
}

// Software names what the device computes with besides snug: the driver, libraries and their
// versions. Nothing of a processor's.
func (s *Setup) Software() []string {
	list := backend.Software(s.Backend)
	if s.overCards(s.Card != nil) {
		if l, err := s.nccl(); err == nil {
			list = append(list, fmt.Sprintf("NCCL %v", l.Version()))
		}
	}
	return list
}

// Schedule is the configured course of the learning rate.
func (s *Setup) Schedule() *train.Schedule {
	t := &s.Config.Training
	return &train.Schedule{
		Kind: train.ScheduleKind(t.LRScheduler), Peak: t.LearningRate, Warmup: int64(t.WarmupSteps), Total: int64(t.MaxSteps),
		Floor: t.MinLRRatio, Factor: t.Plateau.Factor, Patience: t.Plateau.Patience, Threshold: 1e-4,
		Width: s.Model.Width,
	}
}
