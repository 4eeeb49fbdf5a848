package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// Local is the place of this process among those of a run on this machine. The zero value means alone.
type Local struct {
	Rank, World int
	// Processors says who owns the processors that this process may use.
	Processors Ownership
}

// Ownership says who owns the processors that a process may use.
type Ownership int

// The kinds of ownership.
const (
	Unknown Ownership = iota // its own, if all processes together then have no more than the machine
	OfAll                    // shared by all processes of the run on the machine
	OfOne                    // owned by this process
)

// invitation is what the other ranks need to train with rank 0. They decide nothing themselves: they use its
// plan and the data that it prepared.
type invitation struct {
	Version string `json:"version"`
	Config  string `json:"config"` // YAML
	Dir     string `json:"dir"`    // absolute
	Cache   string `json:"cache"`
	// From lists what a phase was made from.
	From       []checkpoint.Origin `json:"from,omitempty"`
	Settings   plan.Settings       `json:"settings"`
	Card       bool                `json:"card,omitempty"`  // whether a card computes
	Rates      *plan.Rates         `json:"rates,omitempty"` // rates of rank 0's processor, if it computes
	Program    string              `json:"program"`         // see run.plan
	Matmuls    []byte              `json:"matmuls,omitempty"`
	Arithmetic string              `json:"arithmetic"`
	Until      int64               `json:"until,omitempty"`
}

// exchange returns the format in which processes exchange gradients or, if they train on their own, what weights
// changed by.
func (s *Setup) exchange() graph.DType {
	switch t := &s.Config.Training; {
	case t.GradientExchange == "bf16":
		return graph.BF16
	case s.diloco() && t.DiLoCo.Exchange == "int8":
		return graph.Int8
	}
	return graph.F32
}

// diloco reports whether processes train on their own between synchronizations.
func (s *Setup) diloco() bool { return s.Config.Training.DiLoCo.InnerSteps > 0 }

// outer returns the outer optimizer of the processes; nil if there is none, or a process trains alone.
func (s *Setup) outer() *engine.Outer {
	d := &s.Config.Training.DiLoCo
	if d.InnerSteps == 0 || s.World == 0 {
		return nil
	}
	return &engine.Outer{World: s.World, InnerSteps: d.InnerSteps, LearningRate: d.OuterLearningRate, Momentum: d.OuterMomentum}
}

// onHost reports whether what processes exchange goes through main memory in any case.
func (s *Setup) onHost() bool { return s.sums() == train.Tree || s.exchange() == graph.Int8 }

// sums returns how processes add up gradients.
func (s *Setup) sums() train.Sums { return sumsOf(s.Config) }

func sumsOf(c *config.Config) train.Sums {
	return map[string]train.Sums{"ordered": train.Ordered, "fast": train.Fast, "tree": train.Tree}[c.Training.GradientSums]
}

// makeRoom lets the goroutines that exchange gradients run while every thread computes, because the workers
// of the processor do not yield.
func (s *Setup) makeRoom() {
	const sending = 2
	if n := s.Threads + sending; s.Card == nil && n > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(n)
	}
}

// shareable rejects a run whose updates the processes cannot share.
func (r *run) shareable() error {
	if err := r.find(); err != nil {
		return err
	}
	switch engine, _ := over(r.Config.Hardware.Exchange); {
	case engine == "mpi" && r.World < 2, engine == "nccl" && r.World == 0:
		r.infof("hardware.exchange: %s is not used: there is one process, which exchanges nothing", r.Config.Hardware.Exchange)
	}
	if r.Group == nil {
		if r.diloco() {
			return usage("training.diloco.inner_steps: %d averages the weights of processes, and this one trains alone: want 0, or --nproc N", r.Config.Training.DiLoCo.InnerSteps)
		}
		if r.exchange() != graph.F32 {
			return usage("training.gradient_exchange: bf16 rounds what processes send each other, and this one trains alone: want fp32, or --nproc N (--nproc 1 computes the same as any number of processes)")
		}
		if r.sums() == train.Tree {
			r.infof("training.gradient_sums: tree is not used: this process trains alone; --nproc 1 adds up as 2, 4, 8, ... processes do")
		}
		return nil
	}
	if r.exchange() == graph.BF16 {
		r.infof("gradients are exchanged in bfloat16: half the bytes, and other bits than fp32 gives, the same for any number of processes")
	}
	r.makeRoom()
	world := r.Group.World()
	if err := sharedBy(r.Config, world); err != nil {
		return err
	}
	if err := stopsAt(r.Config, r.Until); err != nil {
		return err
	}
	switch sums := r.sums(); {
	case r.diloco():
		r.sayDiLoCo()
	case sums == train.Tree:
		r.infof("gradients are added up in pairs of micro-batches, pairs of pairs, ...: less is sent than in their order, and other bits, the same for 1, 2, 4, 8, ... processes")
	case sums == train.Fast && world > 1:
		r.infof("each of %d processes adds up its own micro-batches before they exchange sums: less is sent, and the bits depend on the number of processes", world)
	}
	if shards := r.program.Shards; shards != nil {
		r.infof("the optimizer is shared by %s: this one keeps %s of %s of moments, the others no more", size.Of(world, "process"), size.Bytes(bytesOf(shards.Moments[0])), size.Bytes(bytesOf(shards.Whole)))
	}
	if names := train.Buffered(r.program); world > 1 && len(names) > 0 {
		r.infof("%d running statistics (%s, ...) follow the micro-batches of rank 0, as in PyTorch's DistributedDataParallel: results depend on the number of processes", len(names), names[0])
	}
	return nil
}

// sayDiLoCo reports what processes that train on their own do.
func (r *run) sayDiLoCo() {
	d := &r.Config.Training.DiLoCo
	format := ""
	if d.Exchange == "int8" {
		format = ", sent in 8 bits"
	}
	r.infof("each of %s trains on its own for %s (DiLoCo); then the changes of all weights are averaged%s, and applied with rate %v and momentum %v. Losses in between are those of rank 0, and Ctrl-C takes effect at the next synchronization", size.Of(r.World, "process"), size.Of(d.InnerSteps, "update"), format, d.OuterLearningRate, d.OuterMomentum)
}

func bytesOf(states []*graph.State) (n int64) {
	for _, s := range states {
		n += s.Type.Bytes()
	}
	return n
}

// invite makes the other ranks train this run too.
func (r *run) invite(yaml []byte) error {
	if r.Group == nil {
		return nil
	}
	dir, err := filepath.Abs(r.home())
	if err != nil {
		return err
	}
	cache, err := filepath.Abs(r.Cache(r.dir))
	if err != nil {
		return err
	}
	record, _ := r.runner.Matmuls()
	b, err := json.Marshal(invitation{
		Version: Version(), Config: string(yaml), Dir: dir, Cache: cache, From: r.origins(), Settings: r.report.Run.Settings, Card: r.Card != nil, Rates: r.rates,
		Program: r.planHash(), Matmuls: record, Arithmetic: r.arithmetic(r.runner.Arithmetic()), Until: r.Until,
	})
	if err != nil {
		return err
	}
	_, err = dist.BroadcastSized(r.Group, 0, b)
	return err
}

// dismiss tells the other ranks that there is nothing more to train.
func dismiss(g dist.Group) error {
	if g == nil {
		return nil
	}
	_, err := dist.BroadcastSized(g, 0, nil)
	return err
}

// Follow trains with rank 0, which has the configuration, until it is done. fetch resolves addresses in the
// configuration, as on rank 0; if it is nil, they are paths. When ctx ends, all ranks stop.
func Follow(ctx context.Context, g dist.Group, local Local, fetch config.Fetch) (err error) {
	c := &carrier{met: g}
	defer func() { err = errors.Join(err, c.leave(err)) }()
	for {
		b, err := dist.BroadcastSized(g, 0, nil)
		if err != nil || len(b) == 0 {
			return err
		}
		var in invitation
		if err := json.Unmarshal(b, &in); err != nil {
			return fmt.Errorf("the invitation of rank 0: %w", err)
		}
		if v := Version(); v != in.Version {
			return fmt.Errorf("rank 0 is snug %s, rank %d snug %s: run the same version everywhere", in.Version, g.Rank(), v)
		}
		if err := in.follow(ctx, c, local, fetch); err != nil && !errors.Is(err, train.ErrStopped) {
			return err
		}
	}
}

// setup returns rank 0's setup on this process's device.
func (in *invitation) setup(ctx context.Context, local Local, fetch config.Fetch) (*Setup, error) {
	dir, err := durable.Scratch("rank")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // leftovers are swept later
	file := filepath.Join(dir, checkpoint.ConfigFile)
	if err := durable.Replace(file, []byte(in.Config)); err != nil {
		return nil, err
	}
	from := config.Sources{Systems: Configs(), Presets: configs.FS, File: file, NeedData: true, Fetch: fetch}
	if in.Card { // this process has its own card
		from.Overrides = []config.Override{{Key: "hardware.device", Text: "cuda"}}
	}
	c, err := config.Load(from)
	if err != nil {
		return nil, fmt.Errorf("the configuration of rank 0: %w", err)
	}
	s, err := resolveAs(ctx, c, local, false)
	if err != nil {
		return nil, err
	}
	s.rates = in.Rates
	return s, nil
}

// home returns the run directory to read from: rank 0's, or an empty one if this machine cannot see it.
func (in *invitation) home() (d *rundir.Dir, done func() error, err error) {
	dir, remove := in.Dir, func() error { return nil }
	if _, err := os.Stat(dir); err != nil {
		if dir, err = durable.Scratch("rank"); err != nil {
			return nil, nil, err
		}
		remove = func() error { return os.RemoveAll(dir) }
	}
	d, err = rundir.Look(dir)
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return d, func() error { return errors.Join(d.Close(), remove()) }, nil
}

func (in *invitation) follow(ctx context.Context, carrier *carrier, local Local, fetch config.Fetch) (err error) {
	g := carrier.met
	s, err := in.setup(ctx, local, fetch)
	if err != nil {
		return err
	}
	s.World, s.Rank = g.World(), g.Rank()
	target, err := s.Target()
	if err != nil {
		return err
	}
	p, err := s.Compile(in.Settings, target.Traits, target.Speed(in.Settings.Precision).Seconds)
	if err != nil {
		return err
	}
	if programHash(p) != in.Program {
		return fmt.Errorf("rank %d compiles another program than rank 0 from the same settings: run the same snug on machines of one kind", g.Rank())
	}
	if err := backend.ComputeAs(s.Backend, in.Matmuls); err != nil {
		return err
	}
	home, done, err := in.home()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	d, err := s.Data(ctx, system.Env{Dir: home, Cache: in.Cache, From: in.From, Log: silent})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, CloseData(d)) }()
	x, err := p.Load(s.Backend)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	if err := x.Initialize(s.Config.Training.Seed); err != nil { // initializes what ranks do not share
		return err
	}
	if own := s.arithmetic(x.Arithmetic()); own != in.Arithmetic {
		return fmt.Errorf("rank %d computes in %s, rank 0 in %s, which rounds differently: use machines of one kind, or set hardware.cpu_isa and hardware.blas to what all of them have", g.Rank(), own, in.Arithmetic)
	}
	s.makeRoom()
	j := s.job(d, x)
	j.Until = in.Until
	v, err := carrier.via(ctx, s)
	if err != nil {
		return err
	}
	j.Group, j.NCCL = v.group, v.cards
	if _, err := carrier.pinned(s); err != nil { // rank 0 prints the warning
		return err
	}
	start, err := j.Share(nil)
	if err != nil {
		return err
	}
	_, err = j.Run(ctx, start)
	return err
}

// share gives the other ranks the state to start from.
func (r *run) share(j *train.Job, from *checkpoint.Checkpoint, yaml []byte) (err error) {
	if err := r.invite(yaml); err != nil {
		return err
	}
	v, err := r.carrier.via(r.ctx, r.Setup)
	if err != nil {
		return err
	}
	j.Group, j.NCCL, r.onCards = v.group, v.cards, v.cards != nil
	if v.why != "" {
		r.infof("hardware.exchange auto: %s", v.why)
	}
	switch library := r.carrier.String(); {
	case r.onCards:
		r.infof("%d processes exchange gradients from card to card over %s", r.World, library)
	case library != "":
		r.infof("%d processes exchange gradients over %s", r.World, library)
	}
	warnings, err := r.carrier.pinned(r.Setup)
	if err != nil {
		return err
	}
	for _, text := range warnings {
		r.warnf("%s", text)
	}
	_, err = j.Share(from)
	return err
}
