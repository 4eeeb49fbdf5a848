package train

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/refdevice"
)

// classes is a data loader of random examples for a linear classifier: rows examples per
// update, divided into micro micro-batches, with uneven weights.
type classes struct {
	micro, rows, updates int
	at                   int
	onFill               func(update, m int)
}

const features, labels = 6, 3

func (c *classes) Next() (Update, error) {
	if c.at == c.updates {
		return Update{}, io.EOF
	}
	n := c.at
	c.at++
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	x, y, w := make([]float32, c.rows*features), make([]int32, c.rows), make([]float32, c.rows)
	total := 0.0
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for i := range y {
		y[i], w[i] = int32(rng.IntN(labels)), float32(rng.IntN(4))
		total += float64(w[i])
	}
	per := c.rows / c.micro
	return Update{Micro: c.micro, Weight: total, Tokens: int64(c.rows), Fill: func(m int, in Inputs) error {
		if c.onFill != nil {
			c.onFill(n, m)
		}
		bx, err := in.F32("x")
		if err != nil {
			return err
		}
		by, err := in.I32("y")
		if err != nil {
			return err
		}
		bw, err := in.F32("w")
		if err != nil {
			return err
		}
		copy(bx, x[m*per*features:])
		copy(by, y[m*per:])
		copy(bw, w[m*per:])
		return nil
	}}, nil
}

func (c *classes) Position() any                     { return c.at }
func (c *classes) Seek(cursor json.RawMessage) error { return json.Unmarshal(cursor, &c.at) }
func (c *classes) Close()                            {}

// classifier loads a program for micro-batches of rows examples.
func classifier(t *testing.T, rows, accumulation int) *engine.Executable {
	t.Helper()
	return classifierOn(t, backend.CPU(1), rows, accumulation)
}

func classifierOn(t *testing.T, on engine.Backend, rows, accumulation int) *engine.Executable {
	t.Helper()
	return loaded(t, on, engine.Training{
		Accumulation: accumulation,
		Optimizer:    engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, MaxGradNorm: 1},
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			x := b.Input("x", graph.T(graph.F32, rows, features))
			h := b.Tanh(b.Linear(x, b.Param("w1", graph.Normal(0.5), 5, features), b.Param("b1", graph.Zeros(), 5)))
			y := b.Linear(h, b.Param("w2", graph.Normal(0.5), labels, 5), nil)
			return engine.Objective{Sum: b.CrossEntropy(y, b.Input("y", graph.T(graph.I32, rows)), b.Input("w", graph.T(graph.F32, rows)))}
		},
	})
}

// loaded compiles a program, loads it and initializes its weights.
func loaded(t *testing.T, on engine.Backend, training engine.Training) *engine.Executable {
	t.Helper()
	traits := on.Traits()
	p, err := engine.CompileTraining(training, engine.CompileOptions{Traits: &traits, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Load(on)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Initialize(3); err != nil {
		t.Fatal(err)
	}
	return r
}

func job(r *engine.Executable, loader DataLoader, updates int64) *Job {
	return &Job{Runner: r, Loader: loader, Updates: updates, Schedule: &Schedule{Kind: Constant, Peak: 0.05, Total: updates}, Eval: EvalOptions{Monitor: Metric{Name: "eval_loss"}}}
}

func weights(t *testing.T, r *engine.Executable) []float32 {
	t.Helper()
	var all []float32
	for _, name := range []string{"w1", "b1", "w2"} {
		x, err := r.State(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x.F32()...)
	}
	return all
}

// A device that runs while the host continues, with copied inputs, gives the same as the
// CPU: no slot is filled before the run that reads it is over (the race detector checks
// this too).
func TestDeviceThatRunsOnItsOwn(t *testing.T) {
	var want []float32
	for _, on := range []engine.Backend{backend.CPU(1), refdevice.Backend{}} {
		r := classifierOn(t, on, 3, 4)
		if _, err := job(r, &classes{micro: 4, rows: 12, updates: 20}, 20).Run(context.Background(), 0); err != nil {
			t.Fatal(err)
		}
		got := weights(t, r)
		if want == nil {
			want = got
		}
		for i, x := range got {
			if d := math.Abs(float64(x - want[i])); !(d < 1e-4) {
				t.Fatalf("%s: weight %d is %v, %v on the CPU", on.Name(), i, x, want[i])
			}
		}
	}
}

// An update is the weighted mean over all its examples, however they are divided
// into micro-batches.
func TestAccumulationIsExact(t *testing.T) {
	var want, losses []float64
	for _, micro := range []int{1, 2, 4, 12} {
		r := classifier(t, 12/micro, micro)
		j := job(r, &classes{micro: micro, rows: 12, updates: 20}, 20)
		var got []float64
		j.OnEvent = func(e Event) {
			if s, ok := e.(Step); ok {
				got = append(got, s.Loss)
			}
		}
		if _, err := j.Run(context.Background(), 0); err != nil {
			t.Fatal(err)
		}
		var w []float64
		for _, x := range weights(t, r) {
			w = append(w, float64(x))
		}
		if want == nil {
			want, losses = w, got
			continue
		}
		for i := range w {
			if math.Abs(w[i]-want[i]) > 1e-5 {
				t.Fatalf("%d micro-batches: weight %d is %v, with one it is %v", micro, i, w[i], want[i])
			}
		}
		for i := range got {
			if math.Abs(got[i]-losses[i]) > 1e-5 {
				t.Fatalf("%d micro-batches: loss of update %d is %v, with one it is %v", micro, i+1, got[i], losses[i])
			}
		}
	}
}

// A run that is stopped between two micro-batches leaves the state of the previous
// update, and a run that continues from there ends as if nothing had happened.
func TestStopInsideAnUpdate(t *testing.T) {
	r := classifier(t, 3, 4)
	if _, err := job(r, &classes{micro: 4, rows: 12, updates: 10}, 10).Run(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	want := weights(t, r)

	r = classifier(t, 3, 4)
	ctx, cancel := context.WithCancel(context.Background())
	feed := &classes{micro: 4, rows: 12, updates: 10, onFill: func(update, m int) {
		if update == 5 && m == 2 {
			cancel()
		}
	}}
	j := job(r, feed, 10)
	res, err := j.Run(ctx, 0)
	if !errors.Is(err, ErrStopped) {
		t.Fatalf("the run ended with %v", err)
	}
	if res.Update < 4 || res.Update > 6 {
		t.Fatalf("stopped after %d updates", res.Update)
	}
	for _, s := range r.Program().States {
		if s.Role == graph.Gradient {
			g, _ := r.State(s.Name)
			for i, x := range g.F32() {
				if x != 0 {
					t.Fatalf("%s[%d] is %v after the stop", s.Name, i, x)
				}
			}
		}
	}
	again := &classes{micro: 4, rows: 12, updates: 10, at: int(res.Update)}
	if _, err := job(r, again, 10).Run(context.Background(), res.Update); err != nil {
		t.Fatal(err)
	}
	for i, x := range weights(t, r) {
		if x != want[i] {
			t.Fatalf("weight %d is %v, uninterrupted %v", i, x, want[i])
		}
	}
}

// A run that is stopped before it has done anything does not claim to have saved something.
func TestStopInTheFirstUpdate(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	feed := &classes{micro: 4, rows: 12, updates: 10, onFill: func(_, m int) {
		if m == 1 {
			cancel()
		}
	}}
	res, err := job(classifier(t, 3, 4), feed, 10).Run(ctx, 0)
	if !errors.Is(err, ErrNothingSaved) || !errors.Is(err, ErrStopped) || res.Update != 0 || res.Checkpoint != "" {
		t.Errorf("%+v, %v", res, err)
	}
}

// Micro-batches of an abandoned update leave no trace in the running statistics either.
func TestStopInsideAnUpdateOfBatchNorm(t *testing.T) {
	const rows = 3
	training := engine.Training{
		Accumulation: 4, Optimizer: engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8},
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			running := func(name string) *graph.Value {
				return b.State(&graph.State{Name: name, Type: graph.T(graph.F32, 5), Role: graph.Buffer})
			}
			h := b.Linear(b.Input("x", graph.T(graph.F32, rows, features)), b.Param("w1", graph.Normal(0.5), 5, features), b.Param("b1", graph.Zeros(), 5))
			h = b.Tanh(b.BatchNorm(h, b.Param("gamma", graph.Const(1), 5), b.Param("beta", graph.Zeros(), 5), running("mean"), running("var"), 0.1, 1e-5))
			y := b.Linear(h, b.Param("w2", graph.Normal(0.5), labels, 5), nil)
			return engine.Objective{Sum: b.CrossEntropy(y, b.Input("y", graph.T(graph.I32, rows)), b.Input("w", graph.T(graph.F32, rows)))}
		},
	}
	statistics := func(r *engine.Executable) (all []float32) {
		for _, name := range []string{"mean", "var"} {
			x, err := r.State(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, x.F32()...)
		}
		return append(all, weights(t, r)...)
	}
	r := loaded(t, backend.CPU(1), training)
	if _, err := job(r, &classes{micro: 4, rows: 12, updates: 10}, 10).Run(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	want := statistics(r)
	for stop := range 4 {
		r := loaded(t, backend.CPU(1), training)
		ctx, cancel := context.WithCancel(context.Background())
		feed := &classes{micro: 4, rows: 12, updates: 10, onFill: func(update, m int) {
			if update == 5 && m == stop {
				cancel()
			}
		}}
		res, err := job(r, feed, 10).Run(ctx, 0)
		if !errors.Is(err, ErrStopped) {
			t.Fatalf("the run ended with %v", err)
		}
		again := &classes{micro: 4, rows: 12, updates: 10, at: int(res.Update)}
		if _, err := job(r, again, 10).Run(context.Background(), res.Update); err != nil {
			t.Fatal(err)
		}
		if got := statistics(r); !slices.Equal(got, want) {
			t.Errorf("stopped after %d updates, at micro-batch %d of those filled ahead: %v, uninterrupted %v", res.Update, stop, got, want)
		}
	}
}

// The end of the data ends the run; a bad micro-batch is named.
func TestEndsAndErrors(t *testing.T) {
	r := classifier(t, 4, 1)
	res, err := job(r, &classes{micro: 1, rows: 4, updates: 3}, 10).Run(context.Background(), 0)
	if err != nil || res.Update != 3 || res.Tokens != 12 {
		t.Errorf("after the end of the data: %+v, %v", res, err)
	}

	r = classifier(t, 4, 1)
	w, _ := r.State("w2")
	w.F32()[0] = float32(math.Inf(1))
	if err := r.SetState(w); err != nil {
		t.Fatal(err)
	}
	_, err = job(r, &classes{micro: 1, rows: 4, updates: 3}, 3).Run(context.Background(), 0)
	var bad *NonFiniteError
	if !errors.As(err, &bad) || bad.First == nil || bad.First.Op != "matmul" {
		t.Errorf("an infinite weight ends in %v", err)
	}
}

// spoiled makes an example of one micro-batch infinite.
type spoiled struct {
	*classes
	update, micro int
}

func (s *spoiled) Next() (Update, error) {
	n := s.at
	u, err := s.classes.Next()
	fill := u.Fill
	u.Fill = func(m int, in Inputs) error {
		if err := fill(m, in); err != nil {
			return err
		}
		x, err := in.F32("x")
		if err == nil && n == s.update && m == s.micro {
			x[0] = float32(math.Inf(1))
		}
		return err
	}
	return u, err
}

// The loss is read once per update, and a bad one is still traced to its micro-batch,
// even on devices that run asynchronously.
func TestBadMicroBatchIsNamed(t *testing.T) {
	for _, on := range []engine.Backend{backend.CPU(1), refdevice.Backend{}} {
		for micro := range 4 {
			r := classifierOn(t, on, 3, 4)
			_, err := job(r, &spoiled{&classes{micro: 4, rows: 12, updates: 20}, 5, micro}, 20).Run(context.Background(), 0)
			var bad *NonFiniteError
			if !errors.As(err, &bad) || bad.Update != 6 || bad.Micro != micro || bad.First == nil || bad.First.Op != "matmul" {
				t.Errorf("%s: micro-batch %d ends in %v", on.Name(), micro, err)
			}
			for _, w := range weights(t, r) {
				if !finite(float64(w)) {
					t.Fatalf("%s: the update was applied", on.Name())
				}
			}
		}
	}
}
