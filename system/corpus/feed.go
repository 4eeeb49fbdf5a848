package corpus

import (
	"context"
	"encoding/json"
	"math"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/train"
)

// The inputs of a language model's program.
const (
	InputIDs      = "ids"      // I32 [B, T]
	InputLabels   = "labels"   // I32 [B*T]
	InputWeights  = "weights"  // F32 [B*T]
	InputSegments = "segments" // I32 [B, T], if the model keeps documents apart
)

// feed fits a loader of windows to the trainer.
type feed struct{ l *data.Loader }

// Feed streams shuffled training windows for ever.
func (c *Corpus) Feed(opt data.LoaderOptions) (train.Feed, error) {
	l, err := data.NewLoader(c.Train, opt)
	if err != nil {
		return nil, err
	}
	return feed{l}, nil
}

// Next implements train.Feed.
func (f feed) Next() (train.Update, error) {
	u, err := f.l.Next()
	if err != nil {
		return train.Update{}, err
	}
	return train.Update{
		Micro: len(u.Micro), Weight: u.Weight, Tokens: int64(len(u.Micro) * len(u.Micro[0].Tokens)), Cursor: u.Cursor,
		Fill: func(m int, in train.Inputs) error { return Fill(&u.Micro[m], in) },
	}, nil
}

// Seek implements train.Feed.
func (f feed) Seek(cursor json.RawMessage) error {
	var c data.Cursor
	if err := json.Unmarshal(cursor, &c); err != nil {
		return err
	}
	return f.l.Seek(c)
}

// Close implements train.Feed.
func (f feed) Close() { f.l.Close() }

// Fill puts a micro-batch into the inputs of a program.
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

// Evaluate measures a program's "eval" function on the held-out windows, at
// most batches micro-batches of rows sequences (0: all): loss in nats a token,
// perplexity, and bits per byte of text.
func (c *Corpus) Evaluate(r *engine.Executable, rows, batches int, segments bool) func(ctx context.Context, slot int) (map[string]float64, error) {
	return func(ctx context.Context, slot int) (map[string]float64, error) {
		l, err := data.NewLoader(c.HeldOut, data.LoaderOptions{
			MicroBatches: 1, BatchSize: rows, Segments: segments, Shuffle: batches > 0, Seed: 1, Epochs: 1,
		})
		if err != nil {
			return nil, err
		}
		var sum, weight float64
		for u, err := range data.Pass(ctx, l, batches) {
			if err != nil {
				return nil, err
			}
			if err := Fill(&u.Micro[0], train.Inputs{Runner: r, Slot: slot}); err != nil {
				return nil, err
			}
			if err := r.Run(engine.FuncEval, slot); err != nil {
				return nil, err
			}
			loss, err := r.OutputF32(engine.FuncEval, engine.OutputSum)
			if err != nil {
				return nil, err
			}
			sum += float64(loss[0])
			weight += u.Weight
		}
		loss := sum / weight
		m := map[string]float64{"eval_loss": loss, "perplexity": math.Exp(loss)}
		if n := c.HeldOut.Corpus().Bytes(); n > 0 { // data that came as tokens has no text
			m["bits_per_byte"] = loss / math.Ln2 * c.HeldOut.Weight() / float64(n)
		}
		return m, nil
	}
}
