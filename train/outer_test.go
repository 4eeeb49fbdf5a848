package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/disttest"
	"github.com/snug-ml/snug/dist/nccl"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train/checkpoint"
)

// alone is a training by ranks on their own, of a classifier with updates of 6 micro-batches.
type alone struct {
	outer   engine.Outer // without World
	wire    graph.DType
	nccl    *nccl.Library // nil: through main memory
	scaling *engine.LossScaling
	o       engine.Optimizer
	updates int64
	every   int64 // between checkpoints
	until   int64 // where it stops; 0: nowhere
	fill    func(in Inputs, update, m int)
}

var ownAdamW = engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, MaxGradNorm: 0.1}

// classifying is the classifier: micro is the number of micro-batches in an update.
func classifying(o engine.Optimizer, micro int, outer *engine.Outer, scaling *engine.LossScaling) engine.Training {
	const rows = 2
	return engine.Training{
		Accumulation: micro, Optimizer: o, Outer: outer, LossScaling: scaling,
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			x := b.Input("x", graph.T(graph.F32, rows, features))
			h := b.Tanh(b.Linear(x, b.Param("w1", graph.Normal(0.5), 31, features), b.Param("b1", graph.Zeros(), 31)))
			y := b.Linear(h, b.Param("w2", graph.Normal(0.5), labels, 31), nil)
			aux := b.MulC(b.Sum(b.Square(h), 0, 1), 1e-3)
			return engine.Objective{Aux: aux, Sum: b.CrossEntropy(y, b.Input("y", graph.T(graph.I32, rows)), b.Input("w", graph.T(graph.F32, rows)))}
		},
	}
}

const ownMicro = 6

// spoiling lets a test change what is filled.
type spoiling struct {
	*classes
	fill func(in Inputs, update, m int)
}

func (s spoiling) Next() (Update, error) {
	n := s.at
	u, err := s.classes.Next()
	fill := u.Fill
	u.Fill = func(m int, in Inputs) error {
		err := fill(m, in)
		if s.fill != nil {
			s.fill(in, n, m)
		}
		return err
	}
	return u, err
}

// result is what a rank reports.
type ownResult struct {
	steps    []Step
	warnings []string
	err      error
}

// train trains with the given number of ranks, from a checkpoint in the folder if there is one. group, unless nil,
// wraps the group of each rank.
func (a alone) train(t *testing.T, on engine.Backend, dir string, world int, group func(dist.Group) dist.Group) []ownResult {
	t.Helper()
	groups := dist.InProcess(world)
	if group != nil {
		for r, g := range groups {
			groups[r] = group(g)
		}
	}
	results := make([]ownResult, world)
	for r, err := range atOnce(groups, func(g dist.Group) error { return a.rank(on, dir, g, &results[g.Rank()]) }) {
		results[r].err = err
	}
	return results
}

// done is train that must succeed, or stop where it was to.
func (a alone) done(t *testing.T, dir string, world int) []ownResult {
	t.Helper()
	results := a.train(t, backend.CPU(1), dir, world, nil)
	for r, x := range results {
		if x.err != nil && !errors.Is(x.err, ErrStopped) {
			t.Fatalf("rank %d: %v", r, x.err)
		}
	}
	return results
}

func (a alone) rank(on engine.Backend, dir string, g dist.Group, result *ownResult) (err error) {
	traits := on.Traits()
	o := a.outer
	o.World = g.World()
	p, err := engine.CompileTraining(classifying(a.o, ownMicro, &o, a.scaling), engine.CompileOptions{Traits: &traits, Verify: true, Watched: true})
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
	j := job(x, spoiling{&classes{micro: ownMicro, rows: 2 * ownMicro, updates: int(a.updates)}, a.fill}, a.updates)
	j.Group, j.Exchange, j.NCCL, j.Until = g, a.wire, a.nccl, a.until
	j.OnEvent = func(e Event) {
		switch e := e.(type) {
		case Step:
			result.steps = append(result.steps, e)
		case Warned:
			result.warnings = append(result.warnings, e.Text)
		}
	}
	return keepOn(j, dir, a.every)
}

// tensors returns the tensors of a run's last checkpoint, by file and name.
func tensors(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	c, err := checkpoint.Choose(dir, checkpoint.Last)
	if err != nil {
		t.Fatal(err)
	}
	full, err := checkpoint.Load(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }()
	all := map[string][]byte{}
	for _, f := range []*safetensors.File{full.Weights, full.Optimizer} {
		for _, i := range f.Tensors() {
			x, err := f.Tensor(i.Name)
			if err != nil {
				t.Fatal(err)
			}
			all[i.Name] = bytes.Clone(x.Data)
		}
	}
	return all
}

func equalTensors(a, b map[string][]byte) bool { return maps.EqualFunc(a, b, bytes.Equal) }

// ofOneRank is the data that a rank computes, as a single process sees it.
type ofOneRank struct {
	*classes
	rank, world int
}

func (o ofOneRank) Next() (Update, error) {
	u, err := o.classes.Next()
	fill := u.Fill
	u.Micro, u.Weight = u.Micro/o.world, u.Weight/float64(o.world)
	u.Fill = func(m int, in Inputs) error { return fill(m*o.world+o.rank, in) }
	return u, err
}

func (o ofOneRank) Seek(c json.RawMessage) error { return o.classes.Seek(c) }

// Ranks do what as many processes would do alone with their data, and between rounds what the paper says: computed here
// in float64, from the weights of processes that know nothing of each other.
func TestOuterStepIsThatOfThePaper(t *testing.T) {
	const rounds, inner = 3, 4
	for _, c := range []struct {
		world          int
		rate, momentum float64
	}{{1, 0.7, 0.9}, {2, 0.7, 0.9}, {3, 0.7, 0.9}, {3, 1, 0}, {2, 0.5, 0.3}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			var jobs []*Job
			for r := range c.world {
				x := loaded(t, backend.CPU(1), classifying(ownAdamW, ownMicro/c.world, nil, nil))
				j := job(x, ofOneRank{&classes{micro: ownMicro, rows: 2 * ownMicro, updates: rounds * inner}, r, c.world}, rounds*inner)
				jobs = append(jobs, j)
			}
			names := []string{"w1", "b1", "w2"}
			all := func(j *Job) (out []float64) {
				for _, x := range weights(t, j.Runner) {
					out = append(out, float64(x))
				}
				return out
			}
			synchronized := all(jobs[0])
			momentum := make([]float64, len(synchronized))
			losses := make([]float64, c.world)
			for round := range int64(rounds) {
				gradient := make([]float64, len(synchronized))
				for r, j := range jobs {
					j.Until = (round + 1) * inner
					j.OnEvent = func(e Event) {
						if s, ok := e.(Step); ok {
							losses[r] = s.Loss
						}
					}
					if _, err := j.Run(context.Background(), round*inner); err != nil && !errors.Is(err, ErrStopped) {
						t.Fatal(err)
					}
					if err := j.Loader.Seek(json.RawMessage(fmt.Sprint((round + 1) * inner))); err != nil {
						t.Fatal(err)
					}
					for i, w := range all(j) {
						gradient[i] += (synchronized[i] - w) / float64(c.world)
					}
				}
				for i, g := range gradient {
					momentum[i] = c.momentum*momentum[i] + g
					synchronized[i] -= c.rate * (g + c.momentum*momentum[i])
				}
				for _, j := range jobs {
					at := 0
					for _, name := range names {
						x, err := j.Runner.State(name)
						if err != nil {
							t.Fatal(err)
						}
						for i := range x.F32() {
							x.F32()[i] = float32(synchronized[at])
							at++
						}
						if err := j.Runner.SetState(x); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			dir := t.TempDir()
			a := alone{outer: engine.Outer{InnerSteps: inner, LearningRate: c.rate, Momentum: c.momentum}, o: ownAdamW, updates: rounds * inner}
			got := a.done(t, dir, c.world)
			saved, at := tensors(t, dir), 0
			for _, name := range names {
				for _, x := range floats(saved[name]) {
					if d := math.Abs(float64(x) - synchronized[at]); !(d < 2e-5) {
						t.Fatalf("%s[%d] is %v, float64 gives %v", name, at, x, synchronized[at])
					}
					at++
				}
			}
			mean := 0.0
			for r, loss := range losses {
				mean += loss / float64(c.world)
				if own := got[r].steps[len(got[r].steps)-2]; own.Loss == got[0].steps[len(got[0].steps)-2].Loss && r > 0 {
					t.Errorf("rank %d reports rank 0's loss before the last update, %v: each has its own", r, own.Loss)
				}
			}
			for r, x := range got {
				if last := x.steps[len(x.steps)-1].Loss; math.Abs(last-mean) > 1e-4 {
					t.Errorf("rank %d reports a loss of %v, that of all is %v", r, last, mean)
				}
			}
		})
	}
}

// With one inner step, rate 1 and no momentum the outer step averages weights.
func TestOuterStepAverages(t *testing.T) {
	dir := t.TempDir()
	a := alone{outer: engine.Outer{InnerSteps: 1, LearningRate: 1}, o: ownAdamW, updates: 1}
	a.done(t, dir, 3)
	want := make([]float64, 0)
	for r := range 3 {
		x := loaded(t, backend.CPU(1), classifying(ownAdamW, ownMicro/3, nil, nil))
		if _, err := job(x, ofOneRank{&classes{micro: ownMicro, rows: 2 * ownMicro, updates: 1}, r, 3}, 1).Run(context.Background(), 0); err != nil {
			t.Fatal(err)
		}
		for i, w := range weights(t, x) {
			if r == 0 {
				want = append(want, 0)
			}
			want[i] += float64(w) / 3
		}
	}
	saved, got := tensors(t, dir), []float32(nil)
	for _, name := range []string{"w1", "b1", "w2"} {
		got = append(got, floats(saved[name])...)
	}
	if len(got) != len(want) {
		t.Fatalf("%d weights, want %d", len(got), len(want))
	}
	for i, x := range got {
		if math.Abs(float64(x)-want[i]) > 1e-6 {
			t.Errorf("weight %d is %v, the mean %v", i, x, want[i])
		}
	}
}

// A run that is repeated, or stopped and resumed, has the same bits: weights, and the moments of each rank.
func TestOwnUpdatesResume(t *testing.T) {
	outer := engine.Outer{InnerSteps: 3, LearningRate: 0.7, Momentum: 0.9}
	scaled := &engine.LossScaling{Initial: 0x1p126, Growth: 2, Backoff: 0.5, Interval: 100}
	eight := ownAdamW
	eight.Rule = engine.AdamW8bit
	muon := ownAdamW
	muon.Rule = engine.Muon
	for name, a := range map[string]alone{
		"fp32":        {o: ownAdamW},
		"int8":        {o: ownAdamW, wire: graph.Int8},
		"loss scaled": {o: ownAdamW, scaling: scaled},
		"8 bits":      {o: eight},
		"muon":        {o: muon, wire: graph.Int8},
	} {
		t.Run(name, func(t *testing.T) {
			a.outer, a.updates, a.every = outer, 13, 6
			for _, world := range []int{1, 2, 3} {
				one, two := t.TempDir(), t.TempDir()
				first := a.done(t, one, world)
				want := tensors(t, one)
				a.done(t, two, world)
				if !equalTensors(want, tensors(t, two)) {
					t.Fatalf("%d ranks: the same run has other bits", world)
				}
				dir := t.TempDir()
				b := a
				b.until = 3
				b.done(t, dir, world)
				b.until = 9
				b.done(t, dir, world)
				b.until = 0
				last := b.done(t, dir, world)
				if !equalTensors(want, tensors(t, dir)) {
					t.Errorf("%d ranks: a resumed run has other bits", world)
				}
				for r := range last {
					whole := first[r].steps[9:]
					if !slices.EqualFunc(whole, last[r].steps, func(x, y Step) bool { return x.Loss == y.Loss && x.GradNorm == y.GradNorm && x.Scale == y.Scale }) {
						t.Errorf("rank %d of %d reports other updates once resumed", r, world)
					}
				}
				if world > 1 {
					if bytes.Equal(want["optimizer.m.w1"], want["rank.1.optimizer.m.w1"]) && name != "8 bits" {
						t.Errorf("%d ranks have the same moments", world)
					}
					if want["rank.1.optimizer.step"] == nil || want[fmt.Sprintf("rank.%d.optimizer.step", world)] != nil {
						t.Errorf("the checkpoint of %d ranks has %v", world, slices.Sorted(maps.Keys(want)))
					}
				}
			}
		})
	}
}

// Another number of ranks resumes with the optimizers that there are.
func TestOwnUpdatesResumeWithOthers(t *testing.T) {
	a := alone{outer: engine.Outer{InnerSteps: 2, LearningRate: 0.7, Momentum: 0.9}, o: ownAdamW, updates: 8}
	for _, c := range [][2]int{{2, 6}, {3, 2}, {2, 1}} {
		dir := t.TempDir()
		a.until = 4
		a.done(t, dir, c[0])
		before := tensors(t, dir)
		// Nothing changes in a run that is resumed where it ends, except that it is saved again.
		a.until = 6
		a.done(t, dir, c[1])
		after := tensors(t, dir)
		for rank := range 7 {
			name := ofRank(rank, "optimizer.m.w1")
			if got := after[name] != nil; got != (rank < c[1]) {
				t.Errorf("%d, then %d ranks: %s is there: %v", c[0], c[1], name, got)
			}
		}
		if len(before["outer.momentum.w1"]) == 0 || bytes.Equal(before["outer.momentum.w1"], after["outer.momentum.w1"]) {
			t.Errorf("%d, then %d ranks: no momentum, or the same after another round", c[0], c[1])
		}
	}
}

// Ranks send each other outer gradients once a round, and no gradients in between.
func TestOwnUpdatesSendLittle(t *testing.T) {
	const world, updates = 2, 12
	sent := func(wire graph.DType, inner int) int64 {
		var scattered, gathered atomic.Int64
		a := alone{outer: engine.Outer{InnerSteps: inner, LearningRate: 1}, o: ownAdamW, updates: updates, wire: wire}
		for r, x := range a.train(t, backend.CPU(1), t.TempDir(), world, func(g dist.Group) dist.Group {
			return disttest.Counted{Group: g, Scattered: &scattered, Gathered: &gathered}
		}) {
			if x.err != nil {
				t.Fatalf("rank %d: %v", r, x.err)
			}
		}
		return scattered.Load() + gathered.Load()
	}
	const elems = 31*features + 31 + labels*31
	// Besides: the moments of rank 1 for the checkpoint at the end, what ranks say of their updates and whether to stop.
	const moments, said = 2*4*elems + 4, world * (ownStepBytes + 2)
	for _, inner := range []int{1, 3, 12} {
		rounds := int64(updates / inner)
		if got, want := sent(graph.F32, inner), rounds*(world*4*elems+said)+moments; got > want || got < want-2*rounds {
			t.Errorf("fp32, %d inner steps: all ranks send %d bytes, want about %d", inner, got, want)
		}
		full, coded := sent(graph.F32, inner), sent(graph.Int8, inner)
		if saved := full - coded; saved < rounds*world*(3*elems-2*4*(elems/codeBlock+4)) {
			t.Errorf("%d inner steps: int8 saves %d of %d bytes", inner, saved, full)
		}
	}
}

// mortal is a group that fails at its last call.
type mortal struct {
	dist.Group
	left int
}

var errDied = errors.New("died")

func (m *mortal) call(do func() error) error {
	if m.left--; m.left == 0 {
		return errors.Join(errDied, m.Leave(errDied))
	}
	return do()
}

func (m *mortal) AllToAll(send, recv [][]byte) error {
	return m.call(func() error { return m.Group.AllToAll(send, recv) })
}

func (m *mortal) AllGather(parts [][]byte) error {
	return m.call(func() error { return m.Group.AllGather(parts) })
}

func (m *mortal) Broadcast(root int, data []byte) error {
	return m.call(func() error { return m.Group.Broadcast(root, data) })
}

// Whichever rank dies, and wherever, the others end, and the resumed run has the bits of one that was left alone.
func TestOwnUpdatesSurviveARank(t *testing.T) {
	a := alone{outer: engine.Outer{InnerSteps: 2, LearningRate: 0.7, Momentum: 0.9}, o: ownAdamW, updates: 6, every: 2}
	whole := t.TempDir()
	a.done(t, whole, 2)
	want := tensors(t, whole)
	for victim := range 2 {
		for at := 1; ; at += 5 {
			dir := t.TempDir()
			var dies *mortal
			results := a.train(t, backend.CPU(1), dir, 2, func(g dist.Group) dist.Group {
				if g.Rank() != victim {
					return g
				}
				dies = &mortal{g, at}
				return dies
			})
			if dies.left > 0 { // it had fewer calls
				if at < 20 {
					t.Errorf("rank %d has only %d calls", victim, at)
				}
				break
			}
			for r, x := range results {
				if x.err == nil {
					t.Errorf("rank %d died in call %d, but rank %d ended well", victim, at, r)
				}
			}
			a.done(t, dir, 2)
			if !equalTensors(want, tensors(t, dir)) {
				t.Errorf("rank %d died in call %d: the resumed run has other bits", victim, at)
			}
		}
	}
}

// A rank notices between two synchronizations that another is gone.
func TestOwnUpdatesNoticeALostRank(t *testing.T) {
	a := alone{outer: engine.Outer{InnerSteps: 1000, LearningRate: 1}, o: ownAdamW, updates: 1000}
	dies := a
	dies.fill = func(in Inputs, update, _ int) {
		if x, err := in.F32("x"); err == nil && update == 3 {
			x[0] = float32(math.NaN())
		}
	}
	results := make([]ownResult, 2)
	var all sync.WaitGroup
	for r, g := range dist.InProcess(2) {
		b := dies
		if r == 0 {
			b.fill = func(Inputs, int, int) { time.Sleep(time.Millisecond) }
		}
		all.Go(func() {
			err := b.rank(backend.CPU(1), t.TempDir(), g, &results[r])
			results[r].err = errors.Join(err, g.Leave(err))
		})
	}
	all.Wait()
	var bad *NonFiniteError
	if err := results[1].err; !errors.As(err, &bad) || bad.Update != 4 || bad.First == nil || bad.Micro%2 != 1 {
		t.Errorf("rank 1 ends with %v", err)
	}
	if err := results[0].err; !errors.As(err, new(*dist.EndedError)) || !strings.Contains(err.Error(), "rank 1 failed: update 4") {
		t.Errorf("rank 0 ends with %v", err)
	}
	if n := len(results[0].steps); n >= 999 {
		t.Errorf("rank 0 made %d updates", n)
	}
}

// Updates that a rank skips are its own: its loss scale falls, others' do not, and rank 0 reports them when they meet.
func TestOwnUpdatesSkipped(t *testing.T) {
	a := alone{outer: engine.Outer{InnerSteps: 4, LearningRate: 0.7, Momentum: 0.9}, o: ownAdamW, updates: 8, scaling: &engine.LossScaling{Initial: 1024, Growth: 2, Backoff: 0.5, Interval: 100}}
	a.fill = func(in Inputs, update, m int) {
		if x, err := in.F32("x"); err == nil && m == 1 && (update == 1 || update == 2) { // rank 1's
			x[0] = float32(math.Inf(1))
		}
	}
	dir := t.TempDir()
	results := a.done(t, dir, 2)
	saved := tensors(t, dir)
	for name, want := range map[string]float32{"scaler.scale": 1024, "rank.1.scaler.scale": 256, "optimizer.step": 8, "rank.1.optimizer.step": 6} {
		if got := floats(saved[name])[0]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if want := []string{"rank 1 skipped 2 of its updates 1 to 4: a gradient was not finite"}; !slices.Equal(results[0].warnings, want) {
		t.Errorf("rank 0 says %q, want %q", results[0].warnings, want)
	}
	for _, x := range floats(saved["w1"]) {
		if !finite(float64(x)) {
			t.Fatal("a weight is not finite")
		}
	}
}

// Evaluations, checkpoints and stops are where ranks have the same weights.
func TestOwnUpdatesRefuse(t *testing.T) {
	a := alone{outer: engine.Outer{InnerSteps: 4, LearningRate: 1}, o: ownAdamW, updates: 8}
	for want, change := range map[string]func(a *alone){
		"checkpoints every 6 updates: ranks have the same weights every 4, want a multiple":     func(a *alone) { a.every = 6 },
		"a stop after 2 updates: ranks have the same weights every 4, want a multiple":          func(a *alone) { a.until = 2 },
		"an outer gradient needs weights and gradients in float32":                              func(a *alone) { a.o.Gradients = graph.BF16 },
		"4 ranks cannot train on their own with updates of 6 micro-batches: each needs as many": nil,
	} {
		b, world := a, 4
		if change != nil {
			change(&b)
			world = 2
		}
		for r, x := range b.train(t, backend.CPU(1), t.TempDir(), world, nil) {
			if x.err == nil || !strings.Contains(x.err.Error(), want) {
				t.Errorf("rank %d: %v, want %q", r, x.err, want)
			}
		}
	}
}

// On devices whose memory the host does not reach, in 16 bits or not, ranks train on their own as on the processor.
func TestOwnUpdatesOnOtherDevices(t *testing.T) {
	if testing.Short() {
		t.Skip("kernels are interpreted")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir()) // kernels are kept there, not among the user's
	t.Cleanup(backend.UseDriver(&fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}))
	a := alone{outer: engine.Outer{InnerSteps: 2, LearningRate: 0.7, Momentum: 0.9}, o: ownAdamW, updates: 4, every: 2, wire: graph.Int8}
	dir := t.TempDir()
	a.done(t, dir, 2)
	want := tensors(t, dir)
	for _, device := range []string{"reference", "cuda"} {
		t.Run(device, func(t *testing.T) {
			on, err := backend.Open(backend.Options{Device: device, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			whole, parts := t.TempDir(), t.TempDir()
			run := func(dir string, until int64) {
				b := a
				b.until = until
				for r, x := range b.train(t, on, dir, 2, nil) {
					if x.err != nil && !errors.Is(x.err, ErrStopped) {
						t.Fatalf("rank %d: %v", r, x.err)
					}
				}
			}
			run(whole, 0)
			run(parts, 2)
			run(parts, 0)
			got := tensors(t, whole)
			if !equalTensors(got, tensors(t, parts)) {
				t.Error("a resumed run has other bits")
			}
			for _, name := range []string{"w1", "w2", "outer.momentum.w1"} {
				for i, x := range floats(got[name]) {
					if d := math.Abs(float64(x - floats(want[name])[i])); !(d < 2e-3) {
						t.Fatalf("%s[%d] is %v, on the processor %v", name, i, x, floats(want[name])[i])
					}
				}
			}
		})
	}
}

// What is sent in 8 bits is off by at most 1/254 of the largest magnitude in its block.
func TestCodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(250, 260), rapid.IntRange(4, 2000)).Draw(t, "n")
		x := make([]float32, n)
		magnitude := rapid.SampledFrom([]float64{1, 1e-20, 1e-30, 1e-44, 1e30}).Draw(t, "magnitude")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for i := range x {
			x[i] = float32(rng.NormFloat64() * magnitude)
		}
		if n > 0 && rapid.Bool().Draw(t, "not finite") {
			x[rng.IntN(n)] = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}[rng.IntN(3)]
		}
		w := wireOf(graph.Int8)
		b := make([]byte, 4*n)
		copy(floats(b), x)
		sent := bytes.Clone(w.pack(b))
		if int64(len(sent)) != w.bytes(int64(4*n)) {
			t.Fatalf("%d elements take %d bytes, want %d", n, len(sent), w.bytes(int64(4*n)))
		}
		copy(b, sent)
		w.unpack(b)
		sum := make([]byte, 4*n)
		w.add(sum, sent, true)
		for i, y := range floats(sum) {
			if math.Float32bits(y) != math.Float32bits(floats(b)[i]) {
				t.Fatalf("element %d is %v when added, %v when unpacked", i, y, floats(b)[i])
			}
		}
		w.add(sum, sent, false)
		for from := 0; from < n; from += codeBlock {
			block := x[from:min(n, from+codeBlock)]
			largest, bad := 0.0, false
			for _, v := range block {
				largest = max(largest, math.Abs(float64(v)))
				bad = bad || !finite(float64(v))
			}
			for i, v := range block {
				got := floats(b)[from+i]
				switch {
				case n == 1:
					if math.Float32bits(got) != math.Float32bits(v) {
						t.Fatalf("a single %v becomes %v", v, got)
					}
				case bad:
					if finite(float64(got)) {
						t.Fatalf("%v in a block that is not finite becomes %v", v, got)
					}
				case math.Abs(float64(got)-float64(v)) > max(largest/254*(1+0x1p-20), 0x1p-100):
					t.Fatalf("%v becomes %v, the largest in its block is %v", v, got, largest)
				}
				if two := floats(sum)[from+i]; !bad && two != 2*got {
					t.Fatalf("%v twice is %v", got, two)
				}
			}
		}
	})
}

// The mean that all ranks apply is off by at most 1/127 of the mean of the ranks' largest magnitudes: half a step when
// each sends its own, and half a step of the sum.
func TestExchangeInEightBits(t *testing.T) {
	p := vectors(t, 6, []int{5000, 77, 3})
	for _, world := range []int{1, 2, 3} {
		rng := rand.New(rand.NewPCG(1, uint64(world)))
		grads := make([][][]float32, world)
		largest := 0.0 // sum over ranks
		exact := make([]float64, 5080)
		for r := range grads {
			most, at := 0.0, 0
			for _, n := range []int{5000, 77, 3} {
				x := make([]float32, n)
				for i := range x {
					x[i] = float32(rng.NormFloat64())
					most = max(most, math.Abs(float64(x[i])))
					exact[at] += float64(x[i])
					at++
				}
				grads[r] = append(grads[r], x)
			}
			largest += most
		}
		full, all := exchanged(t, p, world, wireOf(graph.F32), Fast, grads)
		coded, sent := exchanged(t, p, world, wireOf(graph.Int8), Fast, grads)
		if float64(sent) > 0.27*float64(all) {
			t.Errorf("%d ranks send %d bytes in int8, %d in fp32", world, sent, all)
		}
		at, off := 0, 0.0
		for i := range coded {
			for k, x := range coded[i] {
				off = max(off, math.Abs(float64(x)-exact[at]))
				if d := math.Abs(float64(full[i][k]) - exact[at]); d > 1e-5 {
					t.Fatalf("fp32 is off by %v", d)
				}
				at++
			}
		}
		if off > largest/127*1.01 || world > 1 && off < largest/2000 {
			t.Errorf("%d ranks: sums are off by %v, the bound is %v", world, off, largest/127)
		}
	}
}
