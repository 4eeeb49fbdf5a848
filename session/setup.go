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

// Setup is a configuration resolved for this machine: what is trained, on what device, in which precision.
type Setup struct {
	Config *config.Config
	System system.System
	Model  *system.Model
	Host   device.Host
	// Threads is the number of processor threads that compute.
	Threads int
	// World is the number of processes of the run, 0 if this one is alone, and Rank the number of this
	// process. Local is its place among those on this machine.
	World   int
	Rank    int
	Local   Local
	Backend engine.Backend
	// Card is the card that computes; nil if the processor does.
	Card *device.Card
	// Notes are messages about the choice of the device. Chosen says why a card was taken, if there are
	// several.
	Notes  []string
	Chosen string
	// warn receives later messages of the device; nil if nobody listens yet.
	warn func(text string)
	// Precision is in effect, Asked is the configured one, and Reason says why they differ.
	Asked, Precision device.Precision
	Reason           string
	// EpochUnits is the number of tokens (examples) of training data that plans take for an epoch; 0 means as
	// many as the prepared data has.
	EpochUnits int64
	// heap is what the data has added to the garbage-collected heap; 0 before it is open.
	heap int64

	// ofPhase says that this is one phase of a run in phases.
	ofPhase bool
	// slices is the number of slices that the blocks of a resumed run were computed in; 0 if none. The
	// planner must keep it, because the sums of gradients depend on it.
	slices   int
	planning context.Context // ends planning when it is done
	// nccl returns the library that hardware.exchange names, or an installed one.
	nccl func() (*nccl.Library, error)
	// cache keeps what planning compiled; if nil, each planner has its own.
	cache *engine.Cache
	// rates are the processor's, once measured.
	rates *plan.Rates
	// beaten says that training reached a higher peak than the stored one.
	beaten bool
	// dump names a pass; the program before and after it is printed to dumpTo.
	dump   string
	dumpTo io.Writer
}

// Load reads a configuration, by default that of [DefaultPreset], and resolves it for this machine. It fills
// in systems and presets. Warnings go to onEvent, which may be nil.
func Load(ctx context.Context, from config.Sources, onEvent func(Event)) (*Setup, error) {
	return loadAs(ctx, from, Local{}, false, onEvent)
}

// LoadElsewhere is [Load] for plans for other chips than this machine's, which may lack the configured
// precision. processes on each of machines share a run; 0 means that one process is alone.
func LoadElsewhere(ctx context.Context, from config.Sources, processes, machines int, onEvent func(Event)) (*Setup, error) {
	s, err := loadAs(ctx, from, Local{World: processes}, true, onEvent)
	if err == nil {
		s.World = processes * machines
	}
	return s, err
}

// LoadShared is [Load] for a run on several machines like this one, with perMachine processes on each. This
// process counts as one of them.
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

// Respelled translates settings that use the names of other programs. It reports each translation to onEvent,
// which may be nil.
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

// Overridden returns the settings of given and extra; extra wins.
func Overridden(given, extra []config.Override) []config.Override {
	out := slices.DeleteFunc(slices.Clone(given), func(o config.Override) bool {
		return slices.ContainsFunc(extra, func(e config.Override) bool { return e.Key == o.Key })
	})
	return append(out, extra...)
}

// Resolve prepares a configuration for this machine. Cancelling ctx stops planning.
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
	if cfg.Training.LearningRateWidth > 0 && err == nil && s.rateWidth() == 0 {
		err = usage("training.learning_rate_width: a model of %s has no one width to scale the rate by: want 0", cfg.System)
	}
	return s, err
}

// rateWidth is the width by which the learning rate is scaled; 0: there is none.
func (s *Setup) rateWidth() int { return cmp.Or(s.Model.RateWidth, s.Model.Width) }

// LearningRate is the highest rate of the schedule, at the model's width.
func (s *Setup) LearningRate() float64 {
	t := &s.Config.Training
	if w := s.rateWidth(); t.LearningRateWidth > 0 && w != t.LearningRateWidth {
		return t.LearningRate * float64(t.LearningRateWidth) / float64(w)
	}
	return t.LearningRate
}

// resolve decides what the configuration leaves open. With elsewhere set, a precision that this machine lacks
// is no error.
func (s *Setup) resolve(elsewhere bool) error {
	hw := &s.Config.Hardware
	s.Threads = hw.Threads
	if s.Threads == 0 {
		s.Threads = s.Host.CPU.Threads
		if err := s.Config.Derive("hardware.threads", fmt.Sprint(s.Threads), "the cores this process may use"); err != nil {
			return err
		}
	}
	if most := max(16, 4*runtime.NumCPU()); s.Threads > most && !elsewhere { // waiting workers do not yield
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

// Open opens a device with the configured threads and kernels.
func (s *Setup) Open(name string) (engine.Backend, error) { return backend.Open(s.device(name)) }

// device returns the options of a device with the configured threads and kernels.
func (s *Setup) device(name string) backend.Options {
	kernels := string(s.Config.Hardware.CPUISA)
	if kernels == "auto" {
		kernels = "" // means the value of SNUG_CPU_ISA
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

// fits reports whether the configured training fits on a card that was not opened.
func (s *Setup) fits(c backend.Candidate) (bool, error) {
	precision, _, err := device.ChoosePrecision(s.Asked, c.Card)
	if err != nil {
		return false, nil // choosing the card reports that it lacks the precision
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

// Software lists what the device computes with besides snug: the driver and libraries, with their versions.
// It is empty for a processor.
func (s *Setup) Software() []string {
	list := backend.Software(s.Backend)
	if s.overCards(s.Card != nil) {
		if l, err := s.nccl(); err == nil {
			list = append(list, fmt.Sprintf("NCCL %v", l.Version()))
		}
	}
	return list
}

// Schedule returns the configured learning rate schedule.
func (s *Setup) Schedule() *train.Schedule {
	t := &s.Config.Training
	return &train.Schedule{
		Kind: train.ScheduleKind(t.LRScheduler), Peak: s.LearningRate(), Warmup: int64(t.WarmupSteps), Total: int64(t.MaxSteps),
		Floor: t.MinLRRatio, Factor: t.Plateau.Factor, Patience: t.Plateau.Patience, Threshold: 1e-4,
		Width: s.Model.Width,
	}
}
