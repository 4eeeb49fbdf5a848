package train

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/nccl"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train/checkpoint"
)

// wide is a classifier whose matrices and biases are divided among ranks.
func wide(o engine.Optimizer, sharding *engine.Sharding, scaling *engine.LossScaling) engine.Training {
	return wideBy(20_001, o, sharding, scaling)
}

// wideBy is wide with the given number of hidden values.
func wideBy(hidden int, o engine.Optimizer, sharding *engine.Sharding, scaling *engine.LossScaling) engine.Training {
	const rows = 3
	return engine.Training{
		Accumulation: 4, Optimizer: o, Sharding: sharding, LossScaling: scaling,
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			x := b.Input("x", graph.T(graph.F32, rows, features))
			h := b.Tanh(b.Linear(x, b.Param("w1", graph.Normal(0.5), hidden, features), b.Param("b1", graph.Zeros(), hidden)))
			h = b.Tanh(b.Linear(h, b.Param("w2", graph.Normal(0.01), 9, hidden), b.Param("b2", graph.Zeros(), 9)))
			y := b.Linear(h, b.Param("w3", graph.Normal(0.5), labels, 9), nil)
			return engine.Objective{Sum: b.CrossEntropy(y, b.Input("y", graph.T(graph.I32, rows)), b.Input("w", graph.T(graph.F32, rows)))}
		},
	}
}

// wideRun is a training of that classifier.
type wideRun struct {
	hidden  int // values, 0: as wide
	o       engine.Optimizer
	scaling *engine.LossScaling
	wire    graph.DType
	share   bool // the optimizer
	sums    Sums
	nccl    *nccl.Library // nil: through main memory
	// updates is the length of the whole run, until where it stops, 0: nowhere.
	updates, until int64
}

// trainWide trains with the given number of ranks, from a checkpoint in the folder if there is
// one, and returns the files of the tensors.
func trainWide(t *testing.T, on engine.Backend, dir string, world int, c wideRun) (weights, optimizer []byte) {
	t.Helper()
	for r, err := range atOnce(dist.InProcess(world), func(g dist.Group) error { return wideRank(on, dir, g, c) }) {
		if err != nil && !errors.Is(err, ErrStopped) {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	return saved(t, dir)
}

// atOnce runs a training on each member of a group, and returns how it ended there.
func atOnce(groups []dist.Group, rank func(g dist.Group) error) []error {
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for r, g := range groups {
		all.Go(func() {
			errs[r] = rank(g)
			if !errors.Is(errs[r], ErrStopped) {
				errs[r] = errors.Join(errs[r], g.Leave(errs[r]))
			}
		})
	}
	all.Wait()
	return errs
}

// saved returns the files of the tensors of a run's last checkpoint.
func saved(t *testing.T, dir string) (weights, optimizer []byte) {
	t.Helper()
	c, err := checkpoint.Choose(dir, checkpoint.Last)
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(c.Path, name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return read("model.safetensors"), read("optimizer.safetensors")
}

func wideRank(on engine.Backend, dir string, g dist.Group, c wideRun) (err error) {
	var sharding *engine.Sharding
	if c.share {
		sharding = &engine.Sharding{Rank: g.Rank(), World: g.World()}
	}
	traits := on.Traits()
	options := engine.CompileOptions{Traits: &traits, Verify: true, Watched: true}
	if c.o.Round.Mode != graph.Exact {
		options.ComputeDType = graph.BF16
	}
	p, err := engine.CompileTraining(wideBy(cmp.Or(c.hidden, 20_001), c.o, sharding, c.scaling), options)
	if err != nil {
		return err
	}
	x, err := p.Load(on)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	if err := x.Initialize(3); err != nil {
		return err
	}
	j := job(x, &classes{micro: 4, rows: 12, updates: int(c.updates)}, c.updates)
	j.Group, j.Exchange, j.Sums, j.NCCL, j.Until = g, c.wire, c.sums, c.nccl, c.until
	return keepOn(j, dir, 2)
}

// keepOn runs the job of one rank from a checkpoint in the folder, if there is one, and saves after every so many updates.
func keepOn(j *Job, dir string, every int64) (err error) {
	j.Save.Every = every
	var from *checkpoint.Checkpoint
	if j.Group.Rank() == 0 {
		if j.Save.Store, err = checkpoint.Open(dir, checkpoint.Options{}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, j.Save.Store.Close()) }()
		j.Save.Run = checkpoint.Snapshot{Files: map[string][]byte{checkpoint.ConfigFile: []byte("{}")}}
		if from, _, err = j.Save.Store.Latest(); err != nil && !errors.Is(err, checkpoint.ErrNone) {
			return err
		}
		if from != nil {
			if _, err := j.Resume(from); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, from.Close()) }()
		}
	}
	start, err := j.Share(from)
	if err != nil {
		return err
	}
	_, err = j.Run(context.Background(), start)
	return err
}

// Sharing the optimizer changes no bit, for any number of ranks and any optimizer, and
// gives the same checkpoints as not sharing it.
func TestSharedOptimizerHasTheSameBits(t *testing.T) {
	cases := map[string]wideRun{}
	for _, rule := range []engine.Rule{engine.AdamW, engine.AdamW8bit, engine.Lion, engine.Adafactor, engine.Muon} {
		o := engine.Optimizer{Rule: rule, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, MaxGradNorm: 0.5}
		c := cases[string(rule)]
		c.o = o
		cases[string(rule)] = c
		for name, mode := range map[string]graph.RoundingMode{"stochastic": graph.Stochastic, "compensated": graph.Compensated} {
			if testing.Short() && rule != engine.AdamW {
				continue
			}
			c.o.Round = graph.Rounding{Mode: mode, Seed: 5}
			cases[string(rule)+" "+name] = c
		}
	}
	for name, rule := range map[string]string{"gradients of 16 bits": "adamw stochastic", "matrices from gradients of 16 bits": "muon"} {
		c := cases[rule]
		c.o.Gradients = graph.BF16
		cases[name] = c
	}
	c := cases["adamw"]
	c.wire = graph.BF16
	cases["adamw exchanged in bf16"] = c
	c.wire, c.scaling = graph.F32, &engine.LossScaling{Initial: 0x1p126, Growth: 2, Backoff: 0.5, Interval: 2}
	cases["adamw with updates skipped"] = c
	cpu := backend.CPU(1)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && c.o.Rule != engine.AdamW {
				t.Skip("ranks meet as with AdamW")
			}
			c.updates = 5
			w, m := trainWide(t, cpu, t.TempDir(), 1, c)
			c.share = true
			for world := 1; world <= 4; world++ {
				if w1, m1 := trainWide(t, cpu, t.TempDir(), world, c); !bytes.Equal(w, w1) || !bytes.Equal(m, m1) {
					t.Errorf("%d ranks: weights equal %v, moments equal %v", world, bytes.Equal(w, w1), bytes.Equal(m, m1))
				}
			}
			dir := t.TempDir()
			for i, world := range []int{4, 2, 3, 2} {
				c.share, c.until = i != 1, []int64{1, 2, 4, 0}[i]
				if w1, m1 := trainWide(t, cpu, dir, world, c); i == 3 && (!bytes.Equal(w, w1) || !bytes.Equal(m, m1)) {
					t.Errorf("resumed by other ranks: weights equal %v, moments equal %v", bytes.Equal(w, w1), bytes.Equal(m, m1))
				}
			}
		})
	}
}

// On devices whose memory is out of the host's reach, whose tensors lie elsewhere and
// which add up norms in another order, sharing does not depend on the number of ranks
// either.
func TestSharedOptimizerOnOtherDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("kernels are interpreted")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // kernels are kept there, not among the user's
	t.Cleanup(backend.UseDriver(&fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}))
	o := engine.Optimizer{Rule: engine.AdamW8bit, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, MaxGradNorm: 0.5}
	for _, device := range []string{"reference", "cuda"} {
		t.Run(device, func(t *testing.T) {
			on, err := backend.Open(backend.Options{Device: device, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			c := wideRun{o: o, share: true, updates: 2}
			w, m := trainWide(t, on, t.TempDir(), 1, c)
			if w1, m1 := trainWide(t, on, t.TempDir(), 3, c); !bytes.Equal(w, w1) || !bytes.Equal(m, m1) {
				t.Errorf("3 ranks: weights equal %v, moments equal %v", bytes.Equal(w, w1), bytes.Equal(m, m1))
			}
		})
	}
}

// Each rank has about its share of the moments, the first the most, and the arena shows
// it.
func TestSharedMoments(t *testing.T) {
	o := engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}
	bytesOf := func(p *engine.Program) (n int64) {
		for _, s := range p.States {
			if s.Role == graph.Moment {
				n += s.Type.Bytes()
			}
		}
		return n
	}
	compile := func(s *engine.Sharding) *engine.Program {
		p, err := engine.CompileTraining(wide(o, s, nil), engine.CompileOptions{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	whole := compile(nil)
	for _, world := range []int{1, 2, 3, 4, 7} {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			var sum, before int64
			for r := range world {
				p := compile(&engine.Sharding{Rank: r, World: world})
				n := bytesOf(p)
				if even := bytesOf(whole) / int64(world); n < even-8*graph.NormChunk || n > even+8*graph.NormChunk {
					t.Errorf("rank %d has %d bytes, an even part is %d", r, n, even)
				}
				if r > 0 && n > before {
					t.Errorf("rank %d has %d bytes, the one before %d", r, n, before)
				}
				states := whole.Layout.States.Bytes - p.Layout.States.Bytes
				if saved := bytesOf(whole) - n; states < saved-64*int64(len(whole.States)) || states > saved+64*int64(len(whole.States)) {
					t.Errorf("rank %d: the arena has %d bytes of states less, of moments %d", r, states, saved)
				}
				sum, before = sum+n, n
			}
			if sum != bytesOf(whole) {
				t.Errorf("all ranks have %d bytes, one without others %d", sum, bytesOf(whole))
			}
		})
	}
}
