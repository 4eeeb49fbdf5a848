package finetune

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/corpus"
	"github.com/snug-ml/snug/train"
)

// loader adapts a loader of rows to the trainer.
type loader struct {
	l *data.ExampleLoader
	x *rows
	// folder has the weights that base identifies.
	folder, base string
}

// position is a position in the rows, together with the identity of the base weights.
type position struct {
	data.ExamplePosition
	Base string `json:"base"`
}

// newLoader streams shuffled rows endlessly.
func newLoader(c *config.Config, x *rows, s system.Shape, base string) (*loader, error) {
	l, err := data.NewExampleLoader(x, data.ExampleOptions{
		MicroBatches: s.Accumulation, Buckets: []data.Bucket{{Rows: s.MicroBatch}}, Shuffle: c.Data.Shuffle, Seed: c.Data.ShuffleSeed,
		Workers: c.Data.Workers, Depth: c.Data.Prefetch,
	})
	return &loader{l, x, config.Of[Model](c).Folder, base}, err
}

// Next implements [train.DataLoader].
func (f *loader) Next() (train.Update, error) {
	u, err := f.l.Next()
	if err != nil {
		return train.Update{}, err
	}
	return train.Update{
		Micro: len(u.Micro), Weight: u.Weight, Tokens: u.Examples * int64(f.x.length),
		Fill: func(m int, in train.Inputs) error { return f.x.fill(&u.Micro[m], in) },
	}, nil
}

// Position implements [train.DataLoader].
func (f *loader) Position() any { return position{f.l.Position(), f.base} }

// Seek implements [train.DataLoader].
func (f *loader) Seek(at json.RawMessage) error {
	var p position
	if err := json.Unmarshal(at, &p); err != nil {
		return err
	}
	if p.Base != f.base {
		return system.OtherBase(f.folder)
	}
	return f.l.Seek(p.ExamplePosition)
}

// Close implements [train.DataLoader].
func (f *loader) Close() { f.l.Close() }

// fill copies a micro-batch to the inputs of a program. Rows without an example have zero weights, so their
// contents do not matter.
func (x *rows) fill(b *data.ExampleBatch, in train.Inputs) error {
	for f, field := range x.Fields() {
		var err error
		switch {
		case field.Float:
			err = put(in.F32, field.Name, b.Floats[f])
		case field.Name != inputPositions || in.Has(field.Name):
			err = put(in.I32, field.Name, b.Ints[f])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// put copies src to an input of a program.
func put[T any](input func(name string) ([]T, error), name string, src []T) error {
	dst, err := input(name)
	if err != nil {
		return err
	}
	if len(dst) != len(src) {
		return fmt.Errorf("input %q has %d elements, the micro-batch has %d", name, len(dst), len(src))
	}
	copy(dst, src)
	return nil
}

// evaluation measures the loss of the answers, in at most batches micro-batches of size rows (0: all).
func (x *rows) evaluation(size, batches int) train.Evaluator {
	open := func() (*data.ExampleLoader, error) {
		return data.NewExampleLoader(x, data.ExampleOptions{MicroBatches: 1, Buckets: []data.Bucket{{Rows: size}}, Shuffle: batches > 0, Seed: 1, Epochs: 1})
	}
	return &train.Evaluation[corpus.Loss]{
		Batches: train.Pass(open, batches, func(_ int, u *data.ExampleUpdate) train.EvalBatch[corpus.Loss] {
			return train.EvalBatch[corpus.Loss]{
				Fill: func(in train.Inputs) error { return x.fill(&u.Micro[0], in) },
				Read: func(out train.Outputs) (corpus.Loss, error) {
					sum, err := out.Sum()
					return corpus.Loss{Sum: sum, Weight: u.Weight}, err
				},
			}
		}),
		Metrics: metrics,
	}
}

// synthetic returns a generator of inputs for a program with vocab tokens: each row is one conversation whose
// tokens all count.
func synthetic(vocab int) func(rng *rand.Rand, name string, t engine.Tensor) bool {
	fill := corpus.Synthetic(vocab)
	return func(rng *rand.Rand, name string, t engine.Tensor) bool {
		if name != inputPositions {
			return fill(rng, name, t)
		}
		x, length := t.I32(), t.Type.Shape.Last()
		for i := range x {
			x[i] = int32(i % length)
		}
		return true
	}
}
