//go:build (amd64 || arm64) && !nocuda

package train

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/disttest"
	"github.com/snug-ml/snug/dist/nccl"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/dynlib/dynlibtest"
)

// standIn is a library with the functions of NCCL, for ranks of this process.
func standIn(t *testing.T) *nccl.Library {
	t.Helper()
	l, err := nccl.Open([]string{dynlibtest.Build(t, "libnccl.so.2.0", "../dist/nccl/testdata/nccl.c", "VERSION=22304", "SCALABLE")})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// cardOf returns a card with a driver, and the backend of both.
func cardOf(d *fakegpu.Driver) (driver.Context, *cuda.Backend, error) {
	d.Mapped, d.Installed = true, []driver.Card{fakegpu.T4}
	ctx, err := d.Open(0)
	if err != nil {
		return nil, nil, err
	}
	on, err := cuda.New(ctx)
	return ctx, on, err
}

// onCards trains like trainWide, with a card for each rank, and returns the errors.
func onCards(t *testing.T, dir string, world int, c wideRun, of func(rank int) *fakegpu.Driver) []error {
	t.Helper()
	return disttest.Ranks(t, world, func(g dist.Watched) error {
		d := of(g.Rank())
		_, on, err := cardOf(d)
		if err != nil {
			return err
		}
		if err := wideRank(on, dir, g, c); err != nil && !errors.Is(err, ErrStopped) {
			return err
		}
		return d.Left()
	})
}

// trainOnCards returns the files of the tensors.
func trainOnCards(t *testing.T, world int, c wideRun) (weights, optimizer []byte) {
	t.Helper()
	dir := t.TempDir()
	for r, err := range onCards(t, dir, world, c, func(int) *fakegpu.Driver { return &fakegpu.Driver{} }) {
		if err != nil {
			t.Fatalf("rank %d of %d: %v", r, world, err)
		}
	}
	return saved(t, dir)
}

// Over NCCL any number of ranks has the same bits as an exchange through main memory, whether or
// not they share the optimizer, in either wire format and either format of gradients.
func TestCardsExchangeTheSameBits(t *testing.T) {
	library := standIn(t)
	o := engine.Optimizer{Rule: engine.AdamW, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, MaxGradNorm: 0.5}
	for _, c := range []struct {
		wire, gradients graph.DType
		hidden          int   // 20,001: two buckets
		worlds          []int // ranks, of which those of odd cases share the optimizer
	}{{graph.F32, graph.F32, 20_001, []int{2, 4}}, {graph.BF16, graph.F32, 9001, []int{1, 3}}, {graph.F32, graph.BF16, 9001, []int{2, 3}}, {graph.BF16, graph.BF16, 9001, []int{3, 2}}} {
		t.Run(fmt.Sprintf("%v sent, %v kept", c.wire, c.gradients), func(t *testing.T) {
			if testing.Short() && c.wire != c.gradients {
				t.Skip("kernels are interpreted")
			}
			o := o
			if c.gradients == graph.BF16 {
				o.Gradients = graph.BF16
			}
			run := wideRun{hidden: c.hidden, o: o, wire: c.wire, updates: 2}
			w, m := trainOnCards(t, 1, run)
			run.nccl = library
			for i, world := range c.worlds {
				run.share = i%2 == 1
				if w1, m1 := trainOnCards(t, world, run); !bytes.Equal(w, w1) || !bytes.Equal(m, m1) {
					t.Errorf("%d ranks, shared %v: weights equal %v, moments equal %v", world, run.share, bytes.Equal(w, w1), bytes.Equal(m, m1))
				}
				if testing.Short() {
					break
				}
			}
		})
	}
}

// A rank whose card is lost, or has no room, ends the others, wherever it happens.
func TestLostCardEndsAll(t *testing.T) {
	library := standIn(t)
	run := wideRun{hidden: 100, o: engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}, updates: 1, nccl: library, share: true}
	// The position in a run is measured by the graphs launched so far: how often a rank asks
	// whether a stream is done depends on how fast the others are.
	fail := func(graphs int, name string, n int, code driver.Code) *fakegpu.Driver {
		return &fakegpu.Driver{Fail: func(call string) driver.Code {
			if call == "cuGraphLaunch" {
				graphs--
			}
			if call == name && graphs <= 0 {
				if n--; n == 0 {
					return code
				}
			}
			return 0
		}}
	}
	for name, c := range map[string]struct {
		second func() *fakegpu.Driver
		want   string
	}{
		"no room":           {func() *fakegpu.Driver { return fail(0, "cuMemAlloc", 2, driver.OutOfMemory) }, "are needed"},
		"in its first call": {func() *fakegpu.Driver { return fail(0, "cuStreamQuery", 1, driver.LaunchFailed) }, "a kernel failed"},
		"later":             {func() *fakegpu.Driver { return fail(5, "cuStreamQuery", 1, driver.ECCUncorrectable) }, "uncorrectable error"},
	} {
		t.Run(name, func(t *testing.T) {
			errs := onCards(t, t.TempDir(), 2, run, func(rank int) *fakegpu.Driver {
				if rank == 0 {
					return &fakegpu.Driver{}
				}
				return c.second()
			})
			if err := errs[1]; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("rank 1: %v, want %q", err, c.want)
			}
			var ended *dist.EndedError
			if !errors.As(errs[0], &ended) || ended.Rank != 1 {
				t.Errorf("rank 0: %v", errs[0])
			}
		})
	}
}

// An exchange takes as much of its card as the plan says for rank 0, and no more on the others.
func TestPlannedRoom(t *testing.T) {
	library := standIn(t)
	o := engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}
	for _, wire := range []graph.DType{graph.F32, graph.BF16} {
		for _, how := range []Sums{Ordered, Fast} {
			const world = 3
			for r, err := range disttest.Ranks(t, world, func(g dist.Watched) (err error) {
				ctx, on, err := cardOf(&fakegpu.Driver{})
				if err != nil {
					return err
				}
				traits := on.Traits()
				p, err := engine.CompileTraining(wideBy(9001, o, &engine.Sharding{Rank: g.Rank(), World: world}, nil), engine.CompileOptions{Traits: &traits, Watched: true})
				if err != nil {
					return err
				}
				x, err := p.Load(on)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, x.Close()) }()
				before, _, err := ctx.Memory()
				if err != nil {
					return err
				}
				e, err := newExchange(t.Context(), g, x, wireOf(wire), how, library)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, e.close(err)) }()
				after, _, err := ctx.Memory()
				if took, planned := before-after, RoomBytes(p, world, wire, how); took > planned || g.Rank() == 0 && took != planned {
					return fmt.Errorf("the exchange takes %d bytes, planned are %d", took, planned)
				}
				return err
			}) {
				if err != nil {
					t.Errorf("%v, sums %v, rank %d: %v", wire, how, r, err)
				}
			}
		}
	}
}

// Ranks that train on their own and exchange changes of weights from card to card have the bits of an exchange through
// main memory.
func TestCardsTrainOnTheirOwn(t *testing.T) {
	a := alone{outer: engine.Outer{InnerSteps: 2, LearningRate: 0.7, Momentum: 0.9}, o: ownAdamW, updates: 4}
	train := func(library *nccl.Library) map[string][]byte {
		dir := t.TempDir()
		a.nccl = library
		for r, err := range disttest.Ranks(t, 2, func(g dist.Watched) error {
			d := &fakegpu.Driver{}
			_, on, err := cardOf(d)
			if err != nil {
				return err
			}
			return errors.Join(a.rank(on, dir, g, new(ownResult)), d.Left())
		}) {
			if err != nil {
				t.Fatalf("rank %d: %v", r, err)
			}
		}
		return tensors(t, dir)
	}
	if over, through := train(standIn(t)), train(nil); !equalTensors(over, through) {
		t.Error("over NCCL there are other bits")
	}
}
