package train

import (
	"bytes"
	"context"
	"errors"
	"math"
	"testing"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train/checkpoint"
)

// halfClassifier is a classifier in fp16 whose loss scale starts far too high
// and grows after every second good update.
func halfClassifier(t *testing.T) *engine.Executable {
	t.Helper()
	p, err := engine.CompileTraining(engine.Training{
		Accumulation: 1, LossScaling: &engine.LossScaling{Initial: 1 << 24, Growth: 2, Backoff: 0.5, Interval: 2},
		Optimizer: engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1, MaxGradNorm: 1},
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			x := b.Input("x", graph.T(graph.F32, 12, features))
			h := b.Tanh(b.Linear(x, b.Param("w1", graph.Normal(0.5), 5, features), b.Param("b1", graph.Zeros(), 5)))
			y := b.Linear(h, b.Param("w2", graph.Normal(0.5), labels, 5), nil)
			return engine.Objective{Sum: b.CrossEntropy(y, b.Input("y", graph.T(graph.I32, 12)), b.Input("w", graph.T(graph.F32, 12)))}
		},
	}, engine.CompileOptions{ComputeDType: graph.F16, Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Load(backend.CPU(1))
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

// Gradients that are too small to overflow at any scale do not make it infinite, where it would stay.
func TestScaleStaysFinite(t *testing.T) {
	const rows = 3
	r := loaded(t, backend.CPU(1), engine.Training{
		Accumulation: 2, LossScaling: &engine.LossScaling{Initial: 0x1p120, Growth: 2, Backoff: 0.5, Interval: 1},
		Optimizer: engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8},
		Model: func(b *graph.Builder, _ engine.Mode) engine.Objective {
			y := b.Linear(b.Input("x", graph.T(graph.F32, rows, features)), b.Param("w2", graph.Zeros(), labels, features), nil)
			return engine.Objective{Sum: b.CrossEntropy(y, b.Input("y", graph.T(graph.I32, rows)), b.MulC(b.Input("w", graph.T(graph.F32, rows)), 1e-30))}
		},
	})
	j := job(r, &classes{micro: 2, rows: 6, updates: 12}, 12)
	scale := 0.0
	j.OnEvent = func(e Event) {
		if s, ok := e.(Step); ok {
			if scale = s.Scale; s.Skipped || math.IsInf(scale, 0) {
				t.Errorf("update %d: scale %g, skipped: %v", s.Update, scale, s.Skipped)
			}
		}
	}
	if _, err := j.Run(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if scale != 0x1p126 {
		t.Errorf("the scale ends at %g", scale)
	}
}

// states returns the bytes of every state of a program, by name.
func states(t *testing.T, r *engine.Executable) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, s := range r.Program().States {
		x, err := r.State(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		all[s.Name] = bytes.Clone(x.Data)
	}
	return all
}

// An update that overflows in fp16 leaves weights and moments unchanged, bit for bit, and
// the scale grows again after good ones.
func TestSkippedUpdateChangesNothing(t *testing.T) {
	r := halfClassifier(t)
	j := job(r, &classes{micro: 1, rows: 12, updates: 40}, 40)
	before, scale := states(t, r), math.Inf(1)
	skipped, applied, grown := 0, 0, 0
	j.OnEvent = func(e Event) {
		s, ok := e.(Step)
		if !ok {
			return
		}
		after := states(t, r)
		same := true
		for name := range after {
			if name == engine.StateScale || name == engine.StateGood {
				continue
			}
			if !bytes.Equal(before[name], after[name]) {
				same = false
				if s.Skipped {
					t.Errorf("update %d was skipped and changed %s", s.Update, name)
				}
			}
		}
		switch {
		case s.Skipped:
			skipped++
		case same:
			t.Errorf("update %d was applied and changed nothing", s.Update)
		default:
			applied++
		}
		if s.Scale > scale {
			grown++
		}
		before, scale = after, s.Scale
	}
	if _, err := j.Run(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if skipped < 5 || applied < 10 || grown < 3 {
		t.Errorf("%d skipped, %d applied, the scale grew %d times", skipped, applied, grown)
	}
}

// A run in fp16 that is stopped and resumed ends with the same bits as an undisturbed
// one, wherever it is stopped, even among skipped updates.
func TestResumeInHalfPrecision(t *testing.T) {
	const updates = 30
	whole := halfClassifier(t)
	if _, err := job(whole, &classes{micro: 1, rows: 12, updates: updates}, updates).Run(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	want := states(t, whole)
	for _, at := range []int64{2, 9, 20} {
		dir := t.TempDir()
		part := func(resume bool) *engine.Executable {
			store, err := checkpoint.Open(dir, checkpoint.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := store.Close(); err != nil {
					t.Error(err)
				}
			}()
			r := halfClassifier(t)
			j := job(r, &classes{micro: 1, rows: 12, updates: updates}, updates)
			j.Save.Store = store
			start := int64(0)
			if resume {
				c, _, err := store.Latest()
				if err != nil {
					t.Fatal(err)
				}
				if start, err = j.Resume(c); err != nil || start != at {
					t.Fatalf("resumed at %d: %v", start, err)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			} else {
				j.Until = at
			}
			if _, err := j.Run(context.Background(), start); err != nil && !(errors.Is(err, ErrStopped) && !resume) {
				t.Fatal(err)
			}
			return r
		}
		part(false)
		for name, x := range states(t, part(true)) {
			if !bytes.Equal(x, want[name]) {
				t.Errorf("stopped after %d updates, %s differs", at, name)
			}
		}
	}
}

// Evaluations that are not finite are never the best, count against patience, and a
// run that ends with one fails.
func TestEvaluationThatIsNoNumber(t *testing.T) {
	values := []float64{math.NaN(), 2, math.Inf(-1), 1, math.NaN()}
	r := classifier(t, 12, 1)
	j := job(r, &classes{micro: 1, rows: 12, updates: 5}, 5)
	n := 0
	j.Eval.Every = 1
	j.Eval.Evaluator = evaluates(func() (float64, error) {
		n++
		return values[n-1], nil
	})
	res, err := j.Run(context.Background(), 0)
	var bad *BadStateError
	if !errors.As(err, &bad) || bad.Update != 5 || res == nil || res.Best != 1 || res.BestAt != 4 {
		t.Errorf("ended with %+v, %v", res, err)
	}

	e, g := EarlyStopping{Patience: 2}, Metric{Name: "eval_loss"}
	if e.Observe(g, math.NaN()) || !e.Observe(g, math.NaN()) {
		t.Error("evaluations that are no numbers do not end the run")
	}
}
