package train

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

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
