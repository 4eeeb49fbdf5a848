package train

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train/checkpoint"
)

// widened is a classifier whose evaluations have rows of their own. Its weights leave
// the range of float32 products after one update with a huge rate, and stay finite
// themselves.
func widened(t *testing.T, rows, evalRows int) *engine.Executable {
	t.Helper()
	return loaded(t, backend.CPU(1), engine.Training{
		Accumulation: 1, Eval: true, EvalInputs: true,
		Optimizer: engine.Optimizer{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, MaxGradNorm: 1},
		Model: func(b *graph.Builder, mode engine.Mode) engine.Objective {
			n := rows
			if !mode.Train {
				n = evalRows
			}
			h := b.Linear(b.Input("x", graph.T(graph.F32, n, features)), b.Param("w1", graph.Normal(0.5), 5, features), nil)
			y := b.Linear(h, b.Param("w2", graph.Normal(0.5), labels, 5), nil)
			return engine.Objective{Sum: b.CrossEntropy(y, b.Input("y", graph.T(graph.I32, n)), b.Input("w", graph.T(graph.F32, n)))}
		},
	})
}

// A state is tested on the batch that was trained on last, even if evaluations have more rows or
// fewer: rows that do not fit are left out, extra rows have weight 0.
func TestStateIsTriedWithAnotherBatchSize(t *testing.T) {
	for _, evalRows := range []int{3, 12, 20} {
		for _, rate := range []float64{0.01, 1e30} {
			r := widened(t, 12, evalRows)
			store, err := checkpoint.Open(t.TempDir(), checkpoint.Options{})
			if err != nil {
				t.Fatal(err)
			}
			j := job(r, &classes{micro: 1, rows: 12, updates: 1}, 1)
			j.Schedule.Peak, j.Save.Store = rate, store
			_, err = j.Run(context.Background(), 0)
			var bad *BadStateError
			if diverged := rate > 1; errors.As(err, &bad) != diverged {
				t.Errorf("%d rows in evaluations, rate %g: %v", evalRows, rate, err)
			} else if diverged && !strings.Contains(bad.Bad.Problem, "has a loss of") {
				t.Errorf("%d rows in evaluations: %v", evalRows, bad.Bad.Problem)
			}
			sum, err := r.OutputF32(engine.FuncEval, engine.OutputSum)
			if err != nil {
				t.Fatal(err)
			}
			if bad := rate > 1; math.IsNaN(float64(sum[0])) != bad && math.IsInf(float64(sum[0]), 0) != bad {
				t.Errorf("%d rows in evaluations, rate %g: the loss is %v", evalRows, rate, sum[0])
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// examples streams a table to the classifier, as systems do: the loader fills its buffers anew.
type examples struct{ *data.ExampleLoader }

func (l examples) Next() (Update, error) {
	u, err := l.ExampleLoader.Next()
	if err != nil {
		return Update{}, err
	}
	return Update{Micro: len(u.Micro), Weight: u.Weight, Tokens: u.Examples, Fill: func(m int, in Inputs) error {
		b := &u.Micro[m]
		x, err := in.F32("x")
		if err != nil {
			return err
		}
		y, err := in.I32("y")
		if err != nil {
			return err
		}
		w, err := in.F32("w")
		if err != nil {
			return err
		}
		copy(x, b.Floats[0])
		copy(y, b.Ints[1])
		copy(w, b.Weights)
		return nil
	}}, nil
}

func (l examples) Position() any { return l.ExampleLoader.Position() }

func (l examples) Seek(position json.RawMessage) error {
	var at data.ExamplePosition
	if err := json.Unmarshal(position, &at); err != nil {
		return err
	}
	return l.ExampleLoader.Seek(at)
}

// The update that fails is computed again from its own data, although the loader is ahead.
func TestDiagnosisReadsTheDataAgain(t *testing.T) {
	const rows, micros, bad = 3, 2, 5
	for _, world := range []int{1, 2} {
		for _, update := range []int{0, bad} {
			table, err := data.NewTable(data.Field{Name: "x", Float: true, Shape: []int{features}}, data.Field{Name: "y"})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 20 * micros * rows {
				x := make([]float32, features)
				for k := range x {
					x[k] = float32(math.Sin(float64(i*features + k)))
				}
				if i == (update*micros+1)*rows+1 {
					x[0] = float32(math.Inf(1))
				}
				if err := table.Add(1, x, []int32{int32(i % labels)}); err != nil {
					t.Fatal(err)
				}
			}
			var all sync.WaitGroup
			for _, g := range dist.InProcess(world) {
				l, err := data.NewExampleLoader(table, data.ExampleOptions{MicroBatches: micros, Buckets: []data.Bucket{{Rows: rows}}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(l.Close)
				j := job(classifier(t, rows, micros), examples{l}, 20)
				if world > 1 {
					j.Group = g
				}
				all.Go(func() {
					_, err := j.Run(context.Background(), 0)
					var e *NonFiniteError
					if !errors.As(err, &e) {
						t.Errorf("%d ranks: %v", world, err)
					} else if e.Update != int64(update)+1 || e.First == nil || e.Micro != 1 {
						t.Errorf("%d ranks, infinite in update %d, micro-batch 2: %v", world, update+1, err)
					}
				})
			}
			all.Wait()
		}
	}
}
