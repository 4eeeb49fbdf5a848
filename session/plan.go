package session

import (
	"cmp"
	"errors"
	"io"
	"path/filepath"

	"github.com/snug-ml/snug/data/shard"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/dist/mpi"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/corpus"
	"github.com/snug-ml/snug/train"
)

// Settings returns the configured settings in the given precision.
func (s *Setup) Settings(precision device.Precision) (plan.Settings, error) {
	mode, err := pass.ParseRecompute(s.Config.Training.GradientCheckpointing)
	shape, slices := s.Model.Shape, s.Config.Training.CheckpointSlices
	if s.slices > 0 && (mode == pass.RecomputeAuto || mode == pass.RecomputeSlices && slices == 0) {
		mode, slices = pass.RecomputeSlices, s.slices
	}
	offload, _ := plan.ParseOffload(s.Config.Training.Offload) // an error means auto
	return plan.Settings{
		MicroBatch: shape.MicroBatch, Accumulation: shape.Accumulation, CEChunk: shape.CEChunk,
		Recompute: mode, Slices: slices, Precision: precision, Offload: offload,
		NarrowGradients: s.narrowGradients(), Compress: s.Config.Training.ActivationCompression == "int8", Clip: s.clip(),
	}, err
}

// clip returns the norm that gradients are clipped by; empty means the exact one.
func (s *Setup) clip() engine.ClipNorm {
	if c := engine.ClipNorm(s.Config.Training.ClipNorm); c != engine.ClipExact {
		return c
	}
	return ""
}

// checkClip rejects a clipping norm that is known too late for the precision.
func (s *Setup) checkClip(c plan.Settings) error {
	if c.Clip == engine.ClipPrevious && c.Accumulation <= 1 && c.Precision.LossScaling() {
		return usage("training.clip_norm: previous: with fp16 an overflow in any gradient skips the whole update, so that all have to be known before a weight is changed; want exact or two_passes, or training.mixed_precision: fp32 (or bf16 where there is some)")
	}
	return nil
}

// shape translates settings to a shape of the model.
func (s *Setup) shape(c plan.Settings) system.Shape {
	return system.Shape{
		MicroBatch: c.MicroBatch, Accumulation: c.Accumulation, CEChunk: c.CEChunk,
		EvalBatch: s.Model.Shape.EvalBatch, LossScaling: c.Precision.LossScaling(),
	}
}

// trainingKey is everything that a training step of the model depends on, except for what is offloaded.
type trainingKey struct {
	model  *system.Model
	shape  system.Shape
	shared engine.Sharding
	outer  engine.Outer
	narrow bool // 16-bit gradients
	clip   engine.ClipNorm
}

// Compile compiles the training program for settings; price is passed on in [engine.CompileOptions].
func (s *Setup) Compile(c plan.Settings, t engine.Traits, price func(*graph.Node) float64) (*engine.Program, error) {
	return s.compile(c, t, price, nil, nil)
}

func (s *Setup) compile(c plan.Settings, t engine.Traits, price func(*graph.Node) float64, rival func(string) *pass.Rival, cache *engine.Cache) (*engine.Program, error) {
	key := trainingKey{model: s.Model, shape: s.shape(c), narrow: c.NarrowGradients, clip: c.Clip}
	training := s.Model.Training(key.shape)
	if s.Config.Training.Zero > 0 && s.World > 0 && training.Accumulation > 1 { // with a single micro-batch, nothing can be shared
		key.shared = engine.Sharding{Rank: s.Rank, World: s.World}
		training.Sharding = &key.shared
	}
	if o := s.outer(); o != nil && training.Accumulation > 1 {
		key.outer, training.Outer = *o, o
	}
	training.Optimizer.Offload, training.Optimizer.Gradients, training.Optimizer.Clip = c.Offload.Has(plan.OffloadOptimizer), graph.F32, c.Clip
	if c.NarrowGradients {
		training.Optimizer.Gradients = graph.BF16
	}
	return engine.CompileTraining(training, engine.CompileOptions{
		Cache: cache, Of: key,
		Traits: &t, ComputeDType: plan.ComputeDType(c.Precision), TF32: plan.TF32(c.Precision), Compress: c.Compress, Recompute: c.Recompute, Budget: c.Budget, Slices: c.Slices, Watched: s.World > 0,
		OffloadActivations: c.Offload.Has(plan.OffloadActivations), Price: price, Rival: rival, Dump: s.dump, To: s.dumpTo, Context: s.planning,
	})
}

// narrowGradients reports whether gradients are kept in 16 bits.
func (s *Setup) narrowGradients() bool { return s.Config.Training.GradientDtype == "bf16" }

// sayGradients reports gradient settings that have no effect, because no gradient has to wait or all do.
func (r *run) sayGradients() {
	t := &r.Config.Training
	switch {
	case r.clip() == "":
	case r.Model.Shape.Accumulation > 1:
		r.infof("training.clip_norm: %s changes nothing here: with %d micro-batches an update all sums of gradients are kept", t.ClipNorm, r.Model.Shape.Accumulation)
	case t.MaxGradNorm == 0 && (!r.Precision.LossScaling() || r.clip() == engine.ClipPrevious):
		r.infof("training.clip_norm: %s changes nothing here: training.max_grad_norm is 0", t.ClipNorm)
	}
	if r.narrowGradients() && r.Model.Shape.Accumulation <= 1 && t.MaxGradNorm == 0 && !r.Precision.LossScaling() {
		r.infof("training.gradient_dtype: bf16 changes nothing here: with one micro-batch an update and without training.max_grad_norm no gradient is kept")
	}
}

// chunked decides the number of rows of the loss at a time, if the settings leave it open.
func (s *Setup) chunked(c plan.Settings, t plan.Target) plan.Settings {
	if c.CEChunk == 0 {
		c.CEChunk = min(t.LossChunk(c.Precision, s.Model.Classes), c.MicroBatch*int(s.Model.UnitsPerRow))
	}
	return c
}

// Target returns what the run computes on: a card with the memory that is free now, or the processor with its
// measured speed.
func (s *Setup) Target() (plan.Target, error) {
	if s.Card != nil {
		_, free, err := backend.CardOf(s.Backend)
		if err != nil {
			return plan.Target{}, err
		}
		t := plan.OnCard(s.Card, backend.Lower(s.Card))
		// The context already exists and is part of the plan, so its memory counts as free.
		context, _ := s.Card.Context()
		if now := free + context; now < t.Memory {
			t.Memory, t.Taken, t.TakenBy = now, t.Memory-now, backend.Holders(s.Backend)
		}
		t.Budget = int64(s.Config.Hardware.MemoryBudget)
		t.HostMemory = cmp.Or(int64(s.Config.Hardware.HostMemory), s.Host.Memory.Free())
		return t, nil
	}
	if s.rates == nil {
		r, err := ratesFolder().calibrated(s.processor(), backend.CPU(s.Threads))
		if err != nil {
			return plan.Target{}, err
		}
		s.rates = &r
	}
	t := plan.OnHost(s.Host, *s.rates)
	t.Traits = s.Backend.Traits()
	t.Budget = int64(s.Config.Hardware.MemoryBudget)
	return t, nil
}

// Remember keeps what planning compiles for all later plans, not just for those of one [plan.Planner]. It is
// for commands that plan and do nothing else.
func (s *Setup) Remember() { s.cache = new(engine.Cache) }

// Planner returns a planner of the model for a target.
func (s *Setup) Planner(t plan.Target) *plan.Planner {
	cache := s.cache
	if cache == nil {
		cache = new(engine.Cache)
	}
	return &plan.Planner{
		Compile: func(c plan.Settings, rival func(string) *pass.Rival) (*engine.Program, error) {
			return s.compile(c, t.Traits, t.Speed(c.Precision).Seconds, rival, cache)
		},
		Facts:  func(p *engine.Program, c plan.Settings) (plan.Run, error) { return s.facts(p, t, c) },
		Target: t, Offload: s.offloadable(t), AutoOffload: s.Config.Training.Offload == "auto", FullGradients: s.diloco(), Clips: s.Config.Training.MaxGradNorm > 0, LeastMicroBatch: s.Model.LeastRows, Least: s.Model.Least, Classes: s.Model.Classes,
	}
}

// offloadable returns what a run on a target may keep in main memory.
func (s *Setup) offloadable(t plan.Target) plan.Offload {
	switch {
	case t.Traits.Name == engine.CPU.Name:
		return plan.OffloadNothing
	case engine.Rule(s.Config.Training.Optimizer).Offloadable() != nil:
		return plan.OffloadActivations
	}
	return plan.OffloadAll
}

// checkOffload rejects offloading what cannot be offloaded, or what is in main memory anyway.
func (s *Setup) checkOffload(t plan.Target) error {
	key := s.Config.Training.Offload
	asked, ok := plan.ParseOffload(key)
	if !ok || s.offloadable(t).Has(asked) {
		return nil
	}
	if t.Traits.Name == engine.CPU.Name {
		what := "the optimizer's states are"
		if asked.Has(plan.OffloadActivations) {
			what = "activations are"
		}
		return usage("training.offload: %s: the processor computes in main memory, where %s already; want none or auto", key, what)
	}
	return usage("training.offload: %s: %w; want none or activations", key, engine.Rule(s.Config.Training.Optimizer).Offloadable())
}

// facts returns what a plan must know about a run.
func (s *Setup) facts(p *engine.Program, t plan.Target, c plan.Settings) (plan.Run, error) {
	r := plan.Run{Settings: c, Ranks: s.World, Heap: s.heap}
	if s.Model.Unit == "tokens" {
		r.Tokens = int64(c.MicroBatch) * s.Model.UnitsPerRow
	}
	switch {
	case t.Card != nil && s.overCards(s.Card != nil && t.Card.Name == s.Card.Name):
		r.Room = train.RoomBytes(p, s.World, s.exchange(), s.sums())
	case overMPI(s.Config.Hardware.Exchange, s.World):
		r.Exchange, r.MPI = mpi.StagingBytes(s.World), true
		fallthrough
	default:
		r.Exchange += train.ExchangeBytes(p, s.World, s.exchange(), s.sums())
	}
	var err error
	if t.Card != nil {
		if t.Lower != nil {
			r.Workspace, err = t.Lower.Workspace(p)
		}
		if p.Layout.Host.Bytes > 0 {
			r.Staging = train.StagingBytes(p)
		}
		return r, err
	}
	r.Workspace, err = s.Backend.Workspace(p)
	r.Staging = train.StagingBytes(p)
	return r, err
}

// withData plans a program with its data, which is open and has added heap bytes to the heap.
func (s *Setup) withData(p *engine.Program, t plan.Target, c plan.Settings, data *system.Run, heap int64) (*plan.Report, error) {
	facts, err := s.facts(p, t, c)
	if err != nil {
		return nil, err
	}
	facts.Heap = heap
	if t.Card == nil {
		facts.Data = data.DataBytes
	}
	return plan.New(p, t, facts), nil
}

// Fit plans the configured settings for a target, and decides those that were left to the planner.
func (s *Setup) Fit(t plan.Target, precision device.Precision) (*plan.Report, *engine.Program, error) {
	c, err := s.Settings(precision)
	if err != nil {
		return nil, nil, err
	}
	if err := s.checkOffload(t); err != nil {
		return nil, nil, err
	}
	if err := s.checkClip(c); err != nil {
		return nil, nil, err
	}
	c = s.chunked(c, t)
	pl := s.Planner(t)
	report, err := pl.Check(c)
	if report != nil {
		s.whole(&report.Time)
	}
	var no *plan.DoesNotFit
	if errors.As(err, &no) {
		if err := s.smaller(no, t, c); err != nil {
			return report, nil, err
		}
	}
	if err != nil {
		return report, nil, err
	}
	p, err := pl.Program(report.Run.Settings)
	return report, p, err
}

// whole adds the time of all updates and of an epoch, without evaluations and saves.
func (s *Setup) whole(t *plan.Timing) {
	updates := float64(s.Config.Training.MaxSteps)
	t.Run = updates * t.Update
	if t.Slow != nil {
		t.Slow.Run = updates * t.Slow.Update
	}
	if best, least := t.Rate(); best > 0 {
		t.EpochUnits = s.epochUnits()
		t.Epoch = float64(t.EpochUnits) / best
		if t.Slow != nil {
			t.Slow.Epoch = float64(t.EpochUnits) / least
		}
	}
}

// epochUnits returns the number of units (tokens, examples) of training data, as configured or as prepared; 0
// if unknown.
func (s *Setup) epochUnits() (n int64) {
	if s.EpochUnits > 0 || s.Model.Unit != "tokens" || s.Config.Data.CacheDir == "" {
		return s.EpochUnits
	}
	m, err := shard.ReadManifest(filepath.Join(s.Config.Data.CacheDir, corpus.Shards))
	if err != nil {
		return 0 // nothing has been prepared there
	}
	for _, f := range m.TrainFiles {
		n += f.Tokens
	}
	return n
}

// Targets returns the named cards, or this machine if none is named.
func (s *Setup) Targets(cards []string) ([]plan.Target, error) {
	if len(cards) == 0 {
		t, err := s.Target()
		return []plan.Target{t}, err
	}
	var out []plan.Target
	for _, n := range cards {
		c, err := device.Lookup(n)
		if err != nil {
			return nil, UsageError{err}
		}
		t := plan.OnCard(c, backend.Lower(c))
		t.Budget, t.HostMemory = int64(s.Config.Hardware.MemoryBudget), int64(s.Config.Hardware.HostMemory)
		if t.HostMemory == 0 {
			t.HostMemory, t.HostAssumed = plan.ColabMemory, true
		}
		out = append(out, t)
	}
	return out, nil
}

// chip returns what a target computes on.
func (s *Setup) chip(t plan.Target) device.Chip {
	if t.Card != nil {
		return t.Card
	}
	return s.own()
}

// own returns what the run computes on.
func (s *Setup) own() device.Chip {
	if s.Card != nil {
		return s.Card
	}
	return &s.Host.CPU
}

// Plan plans for a target in the precision that suits it. If the plan does not fit, it also returns the
// refusal.
func (s *Setup) Plan(t plan.Target) (report *plan.Report, no *plan.DoesNotFit, err error) {
	precision, _, err := device.ChoosePrecision(s.Asked, s.chip(t))
	if err != nil {
		return nil, nil, err
	}
	if report, _, err = s.Fit(t, precision); errors.As(err, &no) {
		err = nil
	}
	return report, no, err
}

// Cluster describes how the processes of the run are connected on machines with a target. net is the network
// between them, local the link between the cards of one machine; empty means the usual one.
func (s *Setup) Cluster(t plan.Target, net, local string) (c plan.Cluster, err error) {
	c = plan.Cluster{PerNode: max(1, s.Local.World)}
	c.Nodes = s.World / c.PerNode
	if err := addedUp(s.Config, s.World); err != nil {
		return c, err
	}
	switch {
	case c.Nodes > 1 && net == "":
		return c, usage("--nodes %d: name what is between the machines by --link, for instance 25Gb", c.Nodes)
	case c.Nodes == 1 && net != "":
		return c, usage("--link %s: is between machines, of which there is one; give --nodes, or name what is between the cards of a machine by --card-link", net)
	case local != "" && t.Card == nil:
		return c, usage("--card-link %s: is between cards, and %s computes; name a card by --card", local, t.Name)
	case local != "" && c.PerNode == 1:
		return c, usage("--card-link %s: is between the cards of a machine, which has one process; give --nproc", local)
	}
	link := func(flag, text string) (*plan.Link, error) {
		l, err := plan.ParseLink(text)
		if err != nil {
			return nil, usage("%s: %w", flag, err)
		}
		return &l, nil
	}
	if net != "" {
		if c.Net, err = link("--link", net); err != nil {
			return c, err
		}
		if c.Net.Kind != plan.Network {
			return c, usage("--link %s: is inside a machine; name what is between machines by its rate, for instance 25Gb", net)
		}
	}
	if t.Card == nil {
		return c, nil
	}
	host, usual := plan.HostLink(t.Card), plan.CardLink(t.Card)
	c.Host, c.Local, c.Old = &host, &usual, !t.Card.Capability.AtLeast(8, 0)
	if local != "" {
		c.Local, err = link("--card-link", local)
	}
	return c, err
}

// Scale predicts how fast the processes of a cluster run a plan of this setup.
func (s *Setup) Scale(t plan.Target, report *plan.Report, c plan.Cluster) error {
	p, err := s.Planner(t).Program(report.Run.Settings)
	if err != nil {
		return err
	}
	w := report.Work(train.Buckets(p, c.World()), train.Sent(s.exchange()), c.World())
	if p.Outer != nil {
		w.Inner = p.Outer.InnerSteps
	}
	w.Fast, w.Tree = s.sums() == train.Fast, s.sums() == train.Tree
	if p.Shards != nil { // the report has one rank's part of the optimizer, and weights are sent in their own format
		w.Sharded, w.Gather, w.Optimizer = true, 1, w.Optimizer*float64(c.World())
	}
	report.Scaling = report.Scale(c, w, s.Model.Unit)
	return nil
}

// Ladder returns the ladder of the refusal, or one computed from the settings of the plan.
func (s *Setup) Ladder(t plan.Target, report *plan.Report, no *plan.DoesNotFit) ([]plan.Rung, error) {
	if no != nil {
		return no.Ladder, nil
	}
	return s.Planner(t).Ladder(report.Run.Settings)
}

// Ops estimates the operations of an update on a target, as it would be trained there.
func (s *Setup) Ops(t plan.Target, shapes bool) ([]plan.OpRow, error) {
	precision, _, err := device.ChoosePrecision(s.Asked, s.chip(t))
	if err != nil {
		return nil, err
	}
	report, p, err := s.Fit(t, precision)
	if err != nil {
		return nil, err
	}
	return plan.Ops(p, t.Speed(precision), report.Run.Settings.Accumulation, shapes), nil
}

// Dump compiles what would be trained on a target, and prints the program before and after a pass.
func (s *Setup) Dump(t plan.Target, pass string, to io.Writer) error {
	report, _, err := s.Plan(t)
	if err != nil {
		return err
	}
	s.dump, s.dumpTo = pass, to
	defer func() { s.dump, s.dumpTo = "", nil }()
	c := report.Run.Settings
	_, err = s.Compile(c, t.Traits, t.Speed(c.Precision).Seconds)
	return err
}

// Search finds the fastest settings for a target at the configured batch of an update. It keeps what the
// configuration decides.
func (s *Setup) Search(t plan.Target) (*plan.Choice, error) {
	c, err := s.Settings(s.Precision)
	if err != nil {
		return nil, err
	}
	if err := s.checkOffload(t); err != nil {
		return nil, err
	}
	search := plan.Search{Offload: c.Offload, Compress: c.Compress, NarrowGradients: c.NarrowGradients, Clip: c.Clip, Effective: c.Effective(), CEChunk: c.CEChunk}
	for _, c.Precision = range s.precisions(s.chip(t)) {
		c.Accumulation = 1 // the search may choose 1
		if clip := s.checkClip(c); clip == nil {
			search.Precisions = append(search.Precisions, c.Precision)
		} else {
			err = clip
		}
	}
	if len(search.Precisions) == 0 {
		return nil, err
	}
	if c.Recompute != pass.RecomputeAuto {
		search.Recompute = &c.Recompute
	}
	choice, err := s.Planner(t).Fit(search)
	var no *plan.DoesNotFit
	if errors.As(err, &no) {
		return nil, errors.Join(s.smaller(no, t, no.Report.Run.Settings), no)
	}
	return choice, err
}

// precisions returns those to choose from on a chip: the requested one, or fp32 and the best of the chip.
func (s *Setup) precisions(on device.Chip) []device.Precision {
	if s.Asked != device.Auto {
		return []device.Precision{s.Asked}
	}
	best, _, err := device.ChoosePrecision(device.Auto, on)
	if err != nil || best == device.FP32 {
		return []device.Precision{device.FP32}
	}
	return []device.Precision{best, device.FP32}
}
