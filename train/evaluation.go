package train

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
)

// Evaluator measures a loaded program on held-out data.
type Evaluator interface {
	// Accumulate runs a part of the evaluation through the inputs of a slot.
	Accumulate(ctx context.Context, x *engine.Executable, slot int, p Part) (EvalAccumulator, error)
	// Count returns how many micro-batches the whole has, by the function that computes
	// them.
	Count(ctx context.Context, x *engine.Executable) (map[string]int, error)
}

// Part is the share of one process in an evaluation: the micro-batches whose number in
// the pass is Rank modulo World. The zero Part is the whole.
type Part struct{ Rank, World int }

func (p Part) has(n int) bool { return p.World == 0 || n%p.World == p.Rank }

// EvalAccumulator collects a program's predictions for a part of the held-out data.
type EvalAccumulator interface {
	// Merge adds another part of the same evaluation.
	Merge(EvalAccumulator) error
	// MarshalBinary and MergeBinary are Merge across two processes.
	MarshalBinary() ([]byte, error)
	MergeBinary([]byte) error
	// Metrics returns the metrics. Merged parts give those of the whole, bit for bit, in
	// whatever order they were merged.
	Metrics() (map[string]float64, error)
}

// Evaluate runs a whole evaluation through the inputs of a slot.
func Evaluate(ctx context.Context, e Evaluator, x *engine.Executable, slot int) (map[string]float64, error) {
	a, err := e.Accumulate(ctx, x, slot, Part{})
	if err != nil {
		return nil, err
	}
	return a.Metrics()
}

// Evaluation is one pass over held-out data, as described by a system. R is the record of
// a micro-batch: a struct of exported fields that has a serial form.
type Evaluation[R any] struct {
	Batches Batches[R]
	// Metrics computes the metrics from the records of a pass, in order.
	Metrics func(x *engine.Executable, records []R) (map[string]float64, error)
}

// Batches yields the micro-batches for a loaded program, in the order of the pass, each
// valid until the next. An error comes last.
type Batches[R any] func(ctx context.Context, x *engine.Executable) iter.Seq2[EvalBatch[R], error]

// EvalBatch is a micro-batch of an evaluation.
type EvalBatch[R any] struct {
	// Variant is the compiled shape.
	Variant string
	// Fill writes the inputs.
	Fill func(in Inputs) error
	// Read records the program's outputs, which are valid until it returns.
	Read func(out Outputs) (R, error)
}

// Outputs are the results of a function that has run.
type Outputs struct {
	Runner *engine.Executable
	Func   string
}

// F32 returns the F32 output name.
func (o Outputs) F32(name string) ([]float32, error) { return o.Runner.OutputF32(o.Func, name) }

// Has reports whether the function has the output name.
func (o Outputs) Has(name string) bool { return o.Runner.Program().Func(o.Func).F.Output(name) != nil }

// Sum returns the sum of weight times loss over the micro-batch.
func (o Outputs) Sum() (float64, error) {
	x, err := o.F32(engine.OutputSum)
	if err != nil {
		return 0, err
	}
	return float64(x[0]), nil
}

// Accumulate implements [Evaluator].
func (e *Evaluation[R]) Accumulate(ctx context.Context, x *engine.Executable, slot int, p Part) (EvalAccumulator, error) {
	return e.Records(ctx, x, slot, p)
}

// Count implements [Evaluator].
func (e *Evaluation[R]) Count(ctx context.Context, x *engine.Executable) (map[string]int, error) {
	n := map[string]int{}
	for b, err := range e.Batches(ctx, x) {
		if err != nil {
			return nil, err
		}
		n[engine.Variant(engine.FuncEval, b.Variant)]++
	}
	return n, nil
}

// Records is [Evaluation.Accumulate] for callers that need the records.
func (e *Evaluation[R]) Records(ctx context.Context, x *engine.Executable, slot int, p Part) (*Records[R], error) {
	a := &Records[R]{metrics: func(list []R) (map[string]float64, error) { return e.Metrics(x, list) }}
	n := -1
	for b, err := range e.Batches(ctx, x) {
		if err != nil {
			return nil, err
		}
		if n++; !p.has(n) {
			continue
		}
		if err := b.Fill(Inputs{Runner: x, Slot: slot, Eval: true}); err != nil {
			return nil, err
		}
		fn := engine.Variant(engine.FuncEval, b.Variant)
		if err := x.Run(fn, slot); err != nil {
			return nil, err
		}
		r, err := b.Read(Outputs{x, fn})
		if err != nil {
			return nil, err
		}
		a.Add(n, r)
	}
	return a, nil
}

// Records is the [EvalAccumulator] of every evaluation. It sums nothing before
// metrics are requested: it keeps the record of each micro-batch in the order of the
// pass, so that no sum depends on which process computed what.
type Records[R any] struct {
	list    []record[R]
	metrics func([]R) (map[string]float64, error)
}

type record[R any] struct {
	n int
	r R
}

// Add records micro-batch n of the pass.
func (a *Records[R]) Add(n int, r R) { a.list = append(a.list, record[R]{n, r}) }

// Merge implements [EvalAccumulator].
func (a *Records[R]) Merge(other EvalAccumulator) error {
	b, ok := other.(*Records[R])
	if !ok {
		return fmt.Errorf("train: the records of another evaluation, %T, cannot be merged into %T", other, a)
	}
	return a.merge(b.list)
}

func (a *Records[R]) merge(list []record[R]) error {
	all := slices.Concat(a.list, list)
	slices.SortFunc(all, func(x, y record[R]) int { return cmp.Compare(x.n, y.n) })
	for i := 1; i < len(all); i++ {
		if all[i].n == all[i-1].n {
			return fmt.Errorf("train: micro-batch %d of an evaluation was recorded twice: two processes did the same part", all[i].n)
		}
	}
	a.list = all
	return nil
}

// List returns the records in the order of the pass.
func (a *Records[R]) List() []R {
	list := make([]R, len(a.list))
	for i, x := range a.list {
		list[i] = x.r
	}
	return list
}

// Metrics implements [EvalAccumulator].
func (a *Records[R]) Metrics() (map[string]float64, error) { return a.metrics(a.List()) }

// Pass returns the batches of an evaluation of the first limit updates of a loader (0:
// all): batch makes a micro-batch from the n-th.
func Pass[L Stream[U], U, R any](open func() (L, error), limit int, batch func(n int, u U) EvalBatch[R]) Batches[R] {
	return func(ctx context.Context, _ *engine.Executable) iter.Seq2[EvalBatch[R], error] {
		return func(yield func(EvalBatch[R], error) bool) {
			l, err := open()
			if err != nil {
				yield(EvalBatch[R]{}, err)
				return
			}
			n := 0
			for u, err := range data.Pass(ctx, l, limit) {
				if err != nil {
					yield(EvalBatch[R]{}, err)
					return
				}
				if !yield(batch(n, u), nil) {
					return
				}
				n++
			}
		}
	}
}

// Stream returns updates until io.EOF.
type Stream[U any] interface {
	Next() (U, error)
	Close()
}
