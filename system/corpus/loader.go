package corpus

import (
	"encoding/json"
	"math"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/train"
)

// These are the inputs of a language model's program.
const (
	InputIDs      = "ids"      // I32 [B, T]
	InputLabels   = "labels"   // I32 [B*T]
	InputWeights  = "weights"  // F32 [B*T]
	InputSegments = "segments" // I32 [B, T], if the model keeps documents apart
)

// loader adapts a loader of windows to the trainer.
type loader struct{ l *data.Loader }

// Loader streams shuffled training windows endlessly.
func (c *Corpus) Loader(opt data.LoaderOptions) (train.DataLoader, error) {
	l, err := data.NewLoader(c.Train, opt)
	if err != nil {
		return nil, err
	}
	return loader{l}, nil
}

// Next implements [train.DataLoader].
func (f loader) Next() (train.Update, error) {
	u, err := f.l.Next()
	if err != nil {
		return train.Update{}, err
	}
	return train.Update{
		Micro: len(u.Micro), Weight: u.Weight, Tokens: int64(len(u.Micro) * len(u.Micro[0].Tokens)),
		Fill: func(m int, in train.Inputs) error { return Fill(&u.Micro[m], in) },
	}, nil
}

// Position implements [train.DataLoader].
func (f loader) Position() any { return f.l.Position() }

// Seek implements [train.DataLoader].
func (f loader) Seek(position json.RawMessage) error {
	var c data.Position
	if err := json.Unmarshal(position, &c); err != nil {
		return err
	}
	return f.l.Seek(c)
}

// Close implements [train.DataLoader].
func (f loader) Close() { f.l.Close() }

// Fill copies a micro-batch to the inputs of a program.
func Fill(b *data.Batch, in train.Inputs) error {
	var dst data.Batch
	var err error
	if dst.Tokens, err = in.I32(InputIDs); err != nil {
		return err
	}
	if dst.Labels, err = in.I32(InputLabels); err != nil {
		return err
	}
	if dst.Weights, err = in.F32(InputWeights); err != nil {
		return err
	}
	if in.Has(InputSegments) {
		if dst.Segments, err = in.I32(InputSegments); err != nil {
			return err
		}
	}
	return b.CopyTo(dst)
}

// Loss is the loss of held-out labels: a sum of weight times loss, in nats.
type Loss struct{ Sum, Weight float64 }

// Mean returns the mean loss of a label.
func Mean(losses []Loss) float64 {
	var sum, weight float64
	for _, l := range losses {
		sum += l.Sum
		weight += l.Weight
	}
	return sum / weight
}

// Pass makes micro-batches of held-out windows for an evaluation, at most limit of them (0: all). It sets the
// options that are the same for all evaluations.
func Pass[R any](w *data.Windows, opt data.LoaderOptions, limit int, batch func(n int, u *data.Update) train.EvalBatch[R]) train.Batches[R] {
	opt.MicroBatches, opt.Seed, opt.Epochs = 1, 1, 1
	opt.Shuffle = opt.Shuffle || limit > 0
	return train.Pass(func() (*data.Loader, error) { return data.NewLoader(w, opt) }, limit, batch)
}

// Evaluator measures a program's "eval" function on the held-out windows, in at most batches micro-batches of
// rows sequences (0: all). The metrics are loss in nats per token, perplexity, and bits per byte of text.
func (c *Corpus) Evaluator(rows, batches int, segments bool) train.Evaluator {
	return &train.Evaluation[Loss]{
		Batches: Pass(c.HeldOut, data.LoaderOptions{BatchSize: rows, Segments: segments}, batches, func(_ int, u *data.Update) train.EvalBatch[Loss] {
			return train.EvalBatch[Loss]{
				Fill: func(in train.Inputs) error { return Fill(&u.Micro[0], in) },
				Read: func(out train.Outputs) (Loss, error) {
					sum, err := out.Sum()
					return Loss{sum, u.Weight}, err
				},
			}
		}),
		Metrics: func(_ *engine.Executable, losses []Loss) (map[string]float64, error) {
			loss := Mean(losses)
			m := map[string]float64{"eval_loss": loss, "perplexity": math.Exp(loss)}
			if n := c.HeldOut.Corpus().Bytes(); n > 0 { // data that came as tokens has no text
				m["bits_per_byte"] = loss / math.Ln2 * c.HeldOut.Weight() / float64(n)
			}
			return m, nil
		},
	}
}
