package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/disttest"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/graph"
)

// opening is a group that closes a channel when gradients are first exchanged.
type opening struct {
	dist.Group
	once  sync.Once
	first chan struct{}
}

func (g *opening) AllToAll(send, recv [][]byte) error {
	g.once.Do(func() { close(g.first) })
	return g.Group.AllToAll(send, recv)
}

// loadWide is a classifier with two buckets of gradients.
func loadWide(t *testing.T) (*engine.Executable, [][]*graph.State) {
	t.Helper()
	p, err := engine.CompileTraining(wide(engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}, nil, nil), engine.CompileOptions{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	groups := p.Buckets()
	if len(groups) < 2 {
		t.Fatalf("the gradients are in %d buckets", len(groups))
	}
	x, err := p.Load(backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	if err := x.Initialize(3); err != nil {
		t.Fatal(err)
	}
	return x, groups
}

// The first bucket is exchanged before the last is computed.
func TestExchangeBeginsInTheBackwardHalf(t *testing.T) {
	x, groups := loadWide(t)
	last := groups[len(groups)-1]
	first := make(chan struct{})
	j := job(x, &classes{micro: 4, rows: 12, updates: 1}, 1)
	j.Group = &opening{Group: dist.InProcess(1)[0], first: first}
	nodes := 0
	x.Observe(&engine.Observer{Before: func(n *graph.Node) {
		for _, name := range n.Changes() {
			if name == last[len(last)-1].Name {
				nodes++
				<-first
			}
		}
	}})
	if _, err := j.Run(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if nodes == 0 {
		t.Error("no node computes the last gradient")
	}
}

// slow is a route that takes gradients only once it may.
type slow struct {
	route
	may chan struct{}
}

func (r slow) take(k *bucket) error {
	<-r.may
	return r.route.take(k)
}

// An update is abandoned when its gradients are no longer read, whichever way they are added up.
func TestStopWaitsForGradients(t *testing.T) {
	x, _ := loadWide(t)
	ctx, cancel := context.WithCancel(context.Background())
	loader := &classes{micro: 4, rows: 12, updates: 1}
	j := job(x, loader, 1)
	j.Group, j.Sums = dist.InProcess(1)[0], Tree
	var err error
	if j.ranks, err = j.join(ctx); err != nil {
		t.Fatal(err)
	}
	j.bindOutputs()
	e := j.ranks.exchange
	may := make(chan struct{})
	e.route = slow{e.route, may}
	u, err := loader.Next()
	if err == nil {
		err = j.Prepare(Inputs{Runner: x}, &u, 0, 0)
	}
	if err == nil {
		err = j.compute(ctx, &u, 0, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	time.AfterFunc(50*time.Millisecond, func() { close(may) })
	stop, err := j.stops(ctx, 0, 1)
	if !stop || err != nil {
		t.Fatalf("stops: %v, %v", stop, err)
	}
	select {
	case <-may:
	default:
		t.Error("the update is abandoned while its gradients are read")
	}
	if err := e.close(ErrStopped); err != nil {
		t.Errorf("the exchange ends with %v", err)
	}
}

// A card reports the first bucket as final before it has computed the last, even while the host
// waits to use the last, and the report is true.
func TestCardsTellWhatIsFinal(t *testing.T) {
	d := &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}} // this card does everything as late as it may
	c, err := d.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	on, err := cuda.New(c)
	if err != nil {
		t.Fatal(err)
	}
	traits := on.Traits()
	p, err := engine.CompileTraining(wide(engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}, nil, nil), engine.CompileOptions{Traits: &traits, Verify: true, Watched: true})
	if err != nil {
		t.Fatal(err)
	}
	x, err := p.Load(on)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Initialize(3); err != nil {
		t.Fatal(err)
	}
	for _, v := range p.Inputs {
		if in, _ := x.Input(0, v.Name); v.Type.DType == graph.F32 {
			for i := range in.F32() {
				in.F32()[i] = float32(1 + i%3)
			}
		}
	}
	fn := p.Funcs[slices.IndexFunc(p.Funcs, func(f *engine.Func) bool { return engine.IsVariant(f.Name, engine.FuncMicro) })].Name
	groups := p.Buckets()
	first, last := groups[0], groups[len(groups)-1]
	names := func(states []*graph.State) (list []string) {
		for _, s := range states {
			list = append(list, s.Name)
		}
		return list
	}
	read := func(states []*graph.State) (all []float32) {
		for _, s := range states {
			b := make([]float32, s.Type.Shape.Elems())
			if err := x.ReadPart(engine.Part{State: s, Elems: int64(len(b))}, unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), 4*len(b))); err != nil {
				t.Error(err)
			}
			all = append(all, b...)
		}
		return all
	}
	nonzero := func(v float32) bool { return v != 0 }
	for round := range 2 {
		var early []float32
		told := make(chan struct{})
		err := x.RunWatched(fn, 0, &engine.Watch{
			Begins: func(gradients []string) error {
				if slices.Equal(gradients, names(last)) {
					select {
					case <-told:
					case <-time.After(5 * time.Minute):
						return errors.New("nobody says that the first bucket is final while the host waits")
					}
				} else if slices.Contains(gradients, last[0].Name) {
					return fmt.Errorf("%v begin together", gradients)
				}
				return nil
			},
			Ends: func(gradients []string) error {
				if !slices.Equal(gradients, names(first)) {
					return nil
				}
				early = read(first)
				if round == 0 && slices.ContainsFunc(read(last), nonzero) {
					t.Error("the last bucket is computed before the first is final")
				}
				close(told)
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if !sameBits(early, read(first)) || !slices.ContainsFunc(early, nonzero) {
			t.Errorf("round %d: the first bucket was not final", round)
		}
	}
	if !slices.ContainsFunc(read(last), nonzero) {
		t.Error("the last bucket was not computed")
	}
	// A run that is not watched is read after it, as usual.
	before := read(last)
	if err := x.Run(fn, 0); err != nil {
		t.Fatal(err)
	}
	if sameBits(before, read(last)) {
		t.Error("gradients were read before the run that adds to them")
	}
	// An exchange that fails ends the run, whichever callback reports it.
	for _, w := range []*engine.Watch{
		{Begins: func([]string) error { return errBroken }, Ends: func([]string) error { return nil }},
		{Begins: func([]string) error { return nil }, Ends: func([]string) error { return errBroken }},
	} {
		if err := x.RunWatched(fn, 0, w); !errors.Is(err, errBroken) {
			t.Errorf("a watch that fails: %v", err)
		}
	}
	if err := errors.Join(x.Close(), d.Left()); err != nil {
		t.Error(err)
	}
}

var errBroken = errors.New("the exchange broke")

// broken is a group whose exchange fails from a call on.
type broken struct {
	opening
	calls int
}

func (g *broken) AllToAll(send, recv [][]byte) error {
	if g.calls--; g.calls < 0 {
		g.once.Do(func() { close(g.first) })
		return errBroken
	}
	return g.Group.AllToAll(send, recv)
}

// An exchange that fails ends the run in the middle of a function.
func TestFailedExchangeEndsTheRun(t *testing.T) {
	x, groups := loadWide(t)
	last := groups[len(groups)-1]
	for calls := range 2 * len(groups) {
		g := &broken{opening{Group: dist.InProcess(1)[0], first: make(chan struct{})}, calls}
		j := job(x, &classes{micro: 4, rows: 12, updates: 1}, 1)
		j.Group = g
		if calls == 0 { // it has failed before the last gradient is computed
			x.Observe(&engine.Observer{Before: func(n *graph.Node) {
				for _, name := range n.Changes() {
					if name == last[len(last)-1].Name {
						<-g.first
					}
				}
			}})
		}
		if _, err := j.Run(context.Background(), 0); !errors.Is(err, errBroken) {
			t.Errorf("after %d calls: %v", calls, err)
		}
		x.Observe(nil)
	}
}

// A rank that ends with an error does not wait for others that do not come.
func TestCloseEndsACallInHand(t *testing.T) {
	x, _ := loadWide(t)
	g := dist.InProcess(2)[0]
	e, err := newExchange(context.Background(), g, x, wireOf(graph.F32), Ordered, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.begin(&round{ctx: context.Background(), first: true, last: true, computed: 0}); err != nil {
		t.Fatal(err)
	}
	if err := e.close(errBroken); err != nil {
		t.Error(err)
	}
	if err := g.Broadcast(0, nil); err == nil {
		t.Error("the rank has not left the group")
	}
}

// weightsOf returns the weights that the given number of ranks, or a single process (0), make
// in two updates, and the bytes that all ranks sent.
func weightsOf(t *testing.T, world int, how Sums, share bool) (weights []float32, sent int64) {
	t.Helper()
	groups := make([]dist.Group, 1)
	if world > 0 {
		groups = dist.InProcess(world)
	}
	all, errs := make([][]float32, len(groups)), make([]error, len(groups))
	var total atomic.Int64
	var wait sync.WaitGroup
	for r, g := range groups {
		var sharding *engine.Sharding
		if share {
			sharding = &engine.Sharding{Rank: r, World: world}
		}
		wait.Go(func() {
			if g != nil {
				defer func() { _ = g.Leave(errs[r]) }()
				g = disttest.Counted{Group: g, Scattered: &total, Gathered: &total}
			}
			all[r], errs[r] = weightsOfRank(g, how, sharding)
		})
	}
	wait.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d of %d: %v", r, world, err)
		}
		if !sameBits(all[r], all[0]) {
			t.Fatalf("rank %d of %d has other weights than rank 0", r, world)
		}
	}
	return all[0], total.Load()
}

func weightsOfRank(g dist.Group, how Sums, sharding *engine.Sharding) (weights []float32, err error) {
	p, err := engine.CompileTraining(wide(engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, MaxGradNorm: 0.5}, sharding, nil), engine.CompileOptions{Verify: true})
	if err != nil {
		return nil, err
	}
	x, err := p.Load(backend.CPU(1))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	if err := x.Initialize(3); err != nil {
		return nil, err
	}
	j := job(x, &classes{micro: 4, rows: 12, updates: 2}, 2)
	j.Sums = how
	if g != nil {
		j.Group = g
	}
	if _, err := j.Run(context.Background(), 0); err != nil {
		return nil, err
	}
	for _, s := range p.States {
		if s.Role == graph.Weight {
			w, err := x.State(s.Name)
			if err != nil {
				return nil, err
			}
			weights = append(weights, w.F32()...)
		}
	}
	return weights, nil
}

// The fast way sends gradients once per update, adds up a rank's micro-batches like a
// single process, and agrees with the ordered way up to rounding; sharing the optimizer
// does not change a bit.
func TestFastSums(t *testing.T) {
	alone, _ := weightsOf(t, 0, Ordered, false)
	one, _ := weightsOf(t, 1, Fast, false)
	if !sameBits(one, alone) {
		t.Error("one rank has other bits than a process alone")
	}
	ordered, _ := weightsOf(t, 1, Ordered, false)
	for _, world := range []int{2, 3, 4} { // of 3, two have no micro-batch in the last round
		fast, sent := weightsOf(t, world, Fast, false)
		shared, _ := weightsOf(t, world, Fast, true)
		if !sameBits(fast, shared) {
			t.Errorf("%d ranks that share the optimizer have other bits", world)
		}
		for i, x := range fast {
			// Adam's first steps are of the size of the learning rate, whatever the gradient.
			if d := math.Abs(float64(x - ordered[i])); d > 1e-3 {
				t.Errorf("%d ranks: weight %d is %v, added up in order %v", world, i, x, ordered[i])
				break
			}
		}
		each := 2 * int64(len(fast)) * 4 * int64(world-1) // an update, by all
		if most := each + 1<<12; sent < 2*each || sent > 2*most {
			t.Errorf("%d ranks send %d bytes in 2 updates, want %d", world, sent, 2*each)
		}
	}
}

// As a tree, all powers of two of ranks have the same bits, whether or not they share the
// optimizer, send as little as the fast way, and agree with the ordered way up to rounding.
func TestTreeSums(t *testing.T) {
	ordered, _ := weightsOf(t, 1, Ordered, false)
	one, _ := weightsOf(t, 1, Tree, false)
	if sameBits(one, ordered) {
		t.Error("four micro-batches have the same bits in order and as a tree: the test shows nothing")
	}
	for i, x := range one {
		if d := math.Abs(float64(x - ordered[i])); d > 1e-3 {
			t.Errorf("weight %d is %v, added up in order %v", i, x, ordered[i])
			break
		}
	}
	for _, world := range []int{2, 4} {
		for _, share := range []bool{false, true} {
			tree, sent := weightsOf(t, world, Tree, share)
			if !sameBits(tree, one) {
				t.Errorf("%d ranks, optimizer shared %v: other bits than one", world, share)
			}
			each := 2 * int64(len(tree)) * 4 * int64(world-1) // an update, by all
			if most := each + 1<<12; sent < 2*each || sent > 2*most {
				t.Errorf("%d ranks send %d bytes in 2 updates, want %d", world, sent, 2*each)
			}
		}
	}
}

// alike has the same data in every micro-batch.
type alike struct{ classes }

func (a *alike) Next() (Update, error) {
	u, err := a.classes.Next()
	if fill := u.Fill; err == nil {
		u.Fill = func(_ int, in Inputs) error { return fill(0, in) }
	}
	return u, err
}

// Ranks drop different elements, and each micro-batch drops the same ones as in a run of one
// rank, whichever rank computes it.
func TestDropoutDiffersByRank(t *testing.T) {
	losses := func(world int, how Sums) []float32 {
		all, errs := make([][]float32, world), make([]error, world)
		var wait sync.WaitGroup
		for r, g := range dist.InProcess(world) {
			wait.Go(func() {
				defer func() { _ = g.Leave(errs[r]) }()
				x := loaded(t, backend.CPU(1), engine.Training{
					Accumulation: 4, Optimizer: engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8},
					Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
						x := b.Input("x", graph.T(graph.F32, 3, features))
						h := b.Dropout(b.Linear(x, b.Param("w1", graph.Normal(1), 32, features), nil), 0.5, 11)
						y := b.Linear(h, b.Param("w2", graph.Normal(1), labels, 32), nil)
						return engine.Objective{Sum: b.CrossEntropy(y, b.Input("y", graph.T(graph.I32, 3)), b.Input("w", graph.T(graph.F32, 3)))}
					},
				})
				j := job(x, &alike{classes{micro: 4, rows: 12, updates: 1}}, 1)
				j.Group, j.Sums = g, how
				if _, errs[r] = j.Run(context.Background(), 0); errs[r] != nil {
					return
				}
				s, err := x.State(engine.StateLosses)
				all[r], errs[r] = slices.Clone(s.F32()), err
			})
		}
		wait.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for r := range all {
			if !sameBits(all[r], all[0]) {
				t.Errorf("rank %d of %d has losses %v, rank 0 %v", r, world, all[r], all[0])
			}
		}
		return all[0]
	}
	one := losses(1, Ordered)
	for i, x := range one {
		if slices.Contains(one[:i], x) {
			t.Errorf("micro-batches with the same data have losses %v: some drop the same", one)
		}
	}
	for _, how := range []Sums{Ordered, Fast, Tree} {
		for _, world := range []int{2, 4} {
			if got := losses(world, how); !sameBits(got, one) {
				t.Errorf("%d ranks: losses %v, one has %v", world, got, one)
			}
		}
	}
}

// An update may have fewer micro-batches than there are ranks: those without one wait for the
// others.
func TestFewerMicroBatchesThanRanks(t *testing.T) {
	run := func(world int, how Sums) []float32 {
		all, errs := make([][]float32, world), make([]error, world)
		var wait sync.WaitGroup
		for r, g := range dist.InProcess(world) {
			x := classifier(t, 6, 4)
			wait.Go(func() {
				defer func() { _ = g.Leave(errs[r]) }()
				j := job(x, &classes{micro: 2, rows: 12, updates: 3}, 3)
				j.Group, j.Sums = g, how
				if _, errs[r] = j.Run(t.Context(), 0); errs[r] == nil {
					all[r] = weights(t, x)
				}
			})
		}
		wait.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for r := range all {
			if !sameBits(all[r], all[0]) {
				t.Errorf("sums %d: rank %d of %d has other weights than rank 0", how, r, world)
			}
		}
		return all[0]
	}
	for _, how := range []Sums{Ordered, Fast, Tree} {
		if four, one := run(4, how), run(1, how); how != Fast && !sameBits(four, one) {
			t.Errorf("sums %d: 4 ranks have other weights than one", how)
		}
	}
}
