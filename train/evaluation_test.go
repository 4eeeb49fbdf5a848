package train

import (
	"context"
	"testing"

	"github.com/snug-ml/snug/engine"
)

// evaluates is an evaluation that measures an eval_loss.
type evaluates func() (float64, error)

func (e evaluates) Accumulate(context.Context, *engine.Executable, int, Part) (EvalAccumulator, error) {
	loss, err := e()
	a := &Records[float64]{metrics: func(l []float64) (map[string]float64, error) {
		return map[string]float64{"eval_loss": l[0]}, nil
	}}
	a.Add(0, loss)
	return a, err
}

func (evaluates) Count(context.Context, *engine.Executable) (map[string]int, error) {
	return map[string]int{engine.FuncEval: 1}, nil
}

// Records come in the order of the pass, however they were merged.
func TestRecordsKeepTheOrderOfThePass(t *testing.T) {
	parts := make([]*Records[float64], 3)
	for rank := range parts {
		parts[rank] = &Records[float64]{}
		for n := range 10 {
			if (Part{rank, len(parts)}).has(n) {
				parts[rank].Add(n, 1/float64(n+1))
			}
		}
	}
	whole := parts[2]
	for _, p := range []*Records[float64]{parts[0], parts[1]} {
		if err := whole.Merge(p); err != nil {
			t.Fatal(err)
		}
	}
	for n, x := range whole.List() {
		if x != 1/float64(n+1) {
			t.Fatalf("record %d is %v", n, x)
		}
	}
	if n := len(whole.List()); n != 10 {
		t.Errorf("%d records of 10", n)
	}
	if err := whole.Merge(&Records[int]{}); err == nil {
		t.Error("the records of another evaluation were merged")
	}
}
