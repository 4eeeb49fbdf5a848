package dynamo

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/shard"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system/corpus"
	"github.com/snug-ml/snug/train"
)

// maskedLM is the data of phase 0: windows of text in which tokens are masked.
type maskedLM struct {
	config *config.Config
	rows   int // rows of a micro-batch
	tok    *textEncoder
	*corpus.Splits
}

// newMaskedLM tokenizes the documents below cache, or reuses what is there.
func newMaskedLM(ctx context.Context, c *config.Config, rows int, src data.Source, tok *textEncoder, hash, cache, learned string, log func(string, ...any)) (*maskedLM, error) {
	if tok.mask < 0 {
		return nil, fmt.Errorf("phase 0 masks tokens, and the tokenizer has no mask token (<mask>, [MASK])")
	}
	length := c.Data.SeqLen - 1 // excluding the first marker
	splits, err := corpus.Tokenize(ctx, filepath.Join(cache, corpus.Shards), src, tok.Tokenizer, shard.Options{
		Tokenizer: hash, EOS: tok.last, HeldOut: c.Data.HeldOutFraction, Seed: c.Data.ShuffleSeed, Length: length, Corpus: learned,
	}, log)
	if err != nil {
		return nil, err
	}
	return &maskedLM{c, rows, tok, splits}, nil
}

// fill masks tokens of a micro-batch: of those to be predicted, 80 % are replaced by the mask, 10 % by a
// random token, and 10 % are kept. Rows from real on are padding, whose predictions do not count.
func (g *maskedLM) fill(b *data.Batch, real int, rng *rand.Rand, in train.Inputs) error {
	ids, err := in.I32(at(inputIDs, ""))
	if err != nil {
		return err
	}
	lens, err := in.I32(at(inputLens, ""))
	if err != nil {
		return err
	}
	masked, err := in.I32(at(inputMasked, ""))
	if err != nil {
		return err
	}
	original, err := in.I32(at(inputOriginal, ""))
	if err != nil {
		return err
	}
	weights, err := in.F32(at(inputWeights, ""))
	if err != nil {
		return err
	}
	length := len(ids) / g.rows
	for r := range g.rows {
		ids[r*length] = g.tok.first
		copy(ids[r*length+1:(r+1)*length], b.Tokens[r*(length-1):])
		lens[r] = int32(length)
	}
	// Positions are drawn without repetition, each from its own part of the batch.
	places := g.rows * (length - 1)
	for k := range masked {
		from, to := k*places/len(masked), (k+1)*places/len(masked)
		n := from + rng.IntN(max(1, to-from))
		at := n/(length-1)*length + 1 + n%(length-1)
		masked[k], original[k], weights[k] = int32(at), ids[at], 1
		if at/length >= real {
			weights[k] = 0
		}
		switch x := rng.IntN(10); {
		case x < 8:
			ids[at] = g.tok.mask
		case x == 8:
			ids[at] = int32(rng.IntN(g.tok.VocabSize()))
		}
	}
	return nil
}

// start initializes the position table of an encoder trained from scratch with sines and cosines (Vaswani et
// al. 2017), of the same mean square as the usual random numbers. Finding a neighbor is then the same linear
// map at every position, which takes thousands of updates to learn with random rows.
func (g *maskedLM) start(r *engine.Executable) error {
	e := encoder(g.config)
	half := max(1, e.D/2)
	return r.ChangeState(base(e)+".embeddings.position_embeddings.weight", func(x []float32) error {
		for i := range x {
			at, dim := i/e.D, i%e.D
			angle := float64(at) * math.Pow(10000, -float64(dim%half)/float64(half))
			v := math.Sin(angle)
			if dim >= half {
				v = math.Cos(angle)
			}
			x[i] = float32(v * math.Sqrt2 * e.InitStd)
		}
		return nil
	})
}

// maskedLoader adapts the windows to the trainer.
type maskedLoader struct {
	*maskedLM
	l *data.Loader
}

func (g *maskedLM) dataLoader(micros int) (*maskedLoader, error) {
	c := g.config
	l, err := data.NewLoader(g.Train, data.LoaderOptions{
		MicroBatches: micros, BatchSize: g.rows, Shuffle: c.Data.Shuffle, Seed: c.Data.ShuffleSeed, Workers: c.Data.Workers, Depth: c.Data.Prefetch,
	})
	return &maskedLoader{g, l}, err
}

// Next implements [train.DataLoader].
func (f *maskedLoader) Next() (train.Update, error) {
	u, err := f.l.Next()
	if err != nil {
		return train.Update{}, err
	}
	place := uint64(u.Position.Epoch)<<40 | uint64(u.Position.Index)
	return train.Update{
		Micro: len(u.Micro), Weight: float64(len(u.Micro) * maskedCount(f.config, f.rows)), Tokens: u.Windows * int64(f.config.Data.SeqLen),
		Fill: func(m int, in train.Inputs) error {
			rng := rand.New(rand.NewPCG(f.config.Training.Seed+uint64(m), place))
			return f.maskedLM.fill(&u.Micro[m], f.rows, rng, in)
		},
	}, nil
}

// Position implements [train.DataLoader].
func (f *maskedLoader) Position() any { return f.l.Position() }

// Seek implements [train.DataLoader].
func (f *maskedLoader) Seek(position json.RawMessage) error {
	var c data.Position
	if err := json.Unmarshal(position, &c); err != nil {
		return err
	}
	return f.l.Seek(c)
}

// Close implements [train.DataLoader].
func (f *maskedLoader) Close() { f.l.Close() }

// evaluation measures loss and perplexity of predicting masked held-out tokens, the same ones every time.
func (g *maskedLM) evaluation() train.Evaluator {
	batch := func(n int, u *data.Update) train.EvalBatch[corpus.Loss] {
		var weight float64
		return train.EvalBatch[corpus.Loss]{
			Fill: func(in train.Inputs) error {
				if err := g.fill(&u.Micro[0], int(u.Windows), rand.New(rand.NewPCG(1, uint64(n))), in); err != nil {
					return err
				}
				weights, err := in.F32(at(inputWeights, ""))
				for _, w := range weights {
					weight += float64(w)
				}
				return err
			},
			Read: func(out train.Outputs) (corpus.Loss, error) {
				sum, err := out.Sum()
				return corpus.Loss{Sum: sum, Weight: weight}, err
			},
		}
	}
	return &train.Evaluation[corpus.Loss]{
		Batches: corpus.Pass(g.HeldOut, data.LoaderOptions{BatchSize: g.rows, Shuffle: true}, g.config.Training.EvalBatches, batch),
		Metrics: func(_ *engine.Executable, losses []corpus.Loss) (map[string]float64, error) {
			loss := corpus.Mean(losses)
			return map[string]float64{lossName: loss, "perplexity": math.Exp(loss)}, nil
		},
	}
}
