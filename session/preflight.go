package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/dist/mpi"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// Preflight rejects what [Train] with so many processes would reject by its arguments, before they are
// started or wait for each other. It opens no device and creates nothing. own says that this process starts
// the others; then it also rejects what the run directory rules out. Otherwise only rank 0 can do that,
// because its machine may be the only one that has the directory.
func Preflight(ctx context.Context, o Options, world int, own bool) error {
	t := &training{Options: o, ctx: ctx, stream: &stream{}}
	if err := t.ofRun(); err != nil {
		if own {
			return err
		}
		return nil
	}
	c, err := t.configured()
	if err != nil {
		return err
	}
	if err := sharedBy(c, world); err != nil {
		return err
	}
	if err := stopsAt(c, t.Until); err != nil {
		return err
	}
	dir := t.dir(c)
	if system := SystemOf(c); system.Phases != nil {
		if phases := system.Phases(c, dir); len(phases) > 0 {
			for _, p := range phases {
				own, err := config.Load(t.from(p.Settings))
				if err != nil {
					return err
				}
				if err := sharedBy(own, world); err != nil {
					return fmt.Errorf("%s: %w", p.Name, err)
				}
			}
			if !own {
				return nil
			}
			w := &whole{training: t, config: c, path: dir}
			if err := w.vacant(); err != nil {
				return err
			}
			return w.plan()
		}
	}
	if !own {
		return nil
	}
	r := &run{training: t, Setup: &Setup{Config: c, System: SystemOf(c)}, dir: dir}
	if t.Resume {
		return r.sameRun()
	}
	return r.vacant()
}

// configured returns the configuration, without fetching its data.
func (t *training) configured() (c *config.Config, err error) {
	if t.Sources, err = Respelled(t.Sources, nil); err != nil {
		return nil, err
	}
	t.Sources.Fetch = notData(t.Sources.Fetch)
	return config.Load(t.from(nil))
}

// Division is the number of processes that a machine is divided among, and the processors of each; nil means
// that all may use all.
type Division struct {
	Processes  int
	Processors [][]int
	Because    string
}

// Divide divides this machine among the processes of a run: one for each card or, if processors compute, one
// for each part of the memory.
func Divide(ctx context.Context, o Options) (d Division, err error) {
	t := &training{Options: o, ctx: ctx, stream: &stream{}}
	if err := t.ofRun(); err != nil {
		return d, err
	}
	c, err := t.configured()
	if err != nil {
		return d, err
	}
	switch on := c.Hardware.Device; on {
	case "auto", "cuda":
		cards, err := backend.Cards()
		if err != nil && on == "cuda" {
			return d, err
		}
		if n := len(cards); n > 0 {
			return Division{n, nil, fmt.Sprintf("one for each of %d cards", n)}, nil
		}
	case "cpu":
	default:
		return Division{1, nil, "hardware.device " + on + " is one device"}, nil
	}
	nodes := device.Nodes()
	if len(nodes) < 2 {
		return Division{1, nil, "the processors share one memory"}, nil
	}
	texts := make([]string, len(nodes))
	for i, list := range nodes {
		texts[i] = spans(list)
	}
	return Division{len(nodes), nodes, fmt.Sprintf("one for the processors of each memory (%s)", strings.Join(texts, "; "))}, nil
}

// notData returns a fetch function that fetches everything but data.
func notData(fetch config.Fetch) config.Fetch {
	if fetch == nil {
		return nil
	}
	return func(key, value string, list bool) ([]string, bool, error) {
		if section, _, _ := strings.Cut(key, "."); section == "data" {
			return nil, false, nil
		}
		return fetch(key, value, list)
	}
}

// sharedBy rejects settings that so many processes, started as this one was, cannot share.
func sharedBy(c *config.Config, world int) error {
	if err := addedUp(c, world); err != nil {
		return err
	}
	setting := c.Hardware.Exchange
	switch engine, _ := over(setting); {
	case overMPI(setting, world):
		if err := mpi.Launched(os.Getenv); err != nil {
			return fmt.Errorf("hardware.exchange %s: %w", setting, err)
		}
	case engine == "nccl" && c.Hardware.Device == "cpu":
		return onProcessor
	}
	return nil
}

// stopsAt rejects a stop after an update where processes that train on their own have different weights.
func stopsAt(c *config.Config, until int64) error {
	if until >= int64(c.Training.MaxSteps) {
		return nil
	}
	if why := c.Training.DiLoCo.Between(until); why != "" {
		return usage("--until %d: %s", until, why)
	}
	return nil
}

// addedUp rejects sums of gradients that so many processes cannot compute.
func addedUp(c *config.Config, world int) error {
	sums := sumsOf(c)
	if err := sums.Shareable(c.Training.GradientAccumulationSteps, world); err != nil {
		return UsageError{err}
	}
	d := &c.Training.DiLoCo
	switch engine, _ := over(c.Hardware.Exchange); {
	case d.InnerSteps > 0 && c.Training.GradientAccumulationSteps%max(1, world) != 0:
		n := c.Training.GradientAccumulationSteps
		return usage("training.diloco.inner_steps: %d processes each need as many of the %d micro-batches of an update: want training.gradient_accumulation_steps %d or another multiple of %d", world, n, (n/world+1)*world, world)
	case d.InnerSteps > 0 && d.Exchange == "int8" && engine == "nccl":
		return usage("training.diloco.exchange: int8 rounds in main memory, and hardware.exchange: %s exchanges from card to card: want tcp, mpi or auto, or training.diloco.exchange: fp32", c.Hardware.Exchange)
	case sums == train.Tree && c.Training.GradientExchange != "fp32":
		return usage("training.gradient_sums: tree with training.gradient_exchange: %s would round sums where processes meet, which depends on their number: want fp32, or training.gradient_sums: ordered or fast", c.Training.GradientExchange)
	case sums == train.Tree && engine == "nccl":
		return usage("training.gradient_sums: tree adds up in main memory, and hardware.exchange: %s exchanges from card to card: want tcp, mpi or auto, or training.gradient_sums: ordered or fast", c.Hardware.Exchange)
	}
	return nil
}

// vacant rejects a new run in a directory that already has one.
func (r *run) vacant() error {
	list, err := checkpoint.List(r.dir)
	if errors.Is(err, fs.ErrNotExist) || r.Fresh {
		return nil
	}
	for _, e := range list {
		if e.Problem == nil {
			return r.taken(e.Update)
		}
	}
	return err
}

// taken returns the error for a new run in a directory where a run has done so many updates.
func (r *run) taken(updates int64) error {
	return fmt.Errorf("%s has a run with %s done: continue with --resume, start over with --fresh, or choose another --out", r.dir, size.Of(updates, "update"))
}
