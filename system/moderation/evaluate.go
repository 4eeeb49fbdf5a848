package moderation

import (
	"context"
	"math"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
)

// predictions holds a model's outputs for labeled texts.
type predictions struct {
	// Margins are the logit of flagging minus the logit of letting through.
	Margins  []float64
	Positive []bool
	// Index is the position of each text in its split.
	Index []int
}

// evaluation scores x in at most batches micro-batches (0: all).
func (x *examples) evaluation(batches int) *train.Evaluation[predictions] {
	open := func() (*data.ExampleLoader, error) {
		return data.NewExampleLoader(x, data.ExampleOptions{MicroBatches: 1, Buckets: x.buckets, Shuffle: batches > 0, Seed: 1, Epochs: 1})
	}
	return &train.Evaluation[predictions]{
		Batches: train.Pass(open, batches, func(_ int, u *data.ExampleUpdate) train.EvalBatch[predictions] {
			b := &u.Micro[0]
			return train.EvalBatch[predictions]{
				Variant: variant(x.buckets[b.Bucket].Length),
				Fill:    func(in train.Inputs) error { return x.fill(b, in) },
				Read:    func(out train.Outputs) (predictions, error) { return x.read(b, out) },
			}
		}),
		Metrics: func(_ *engine.Executable, parts []predictions) (map[string]float64, error) {
			return joined(parts).metrics()
		},
	}
}

// read returns the program's output for a micro-batch.
func (x *examples) read(b *data.ExampleBatch, out train.Outputs) (s predictions, err error) {
	logits, err := out.F32(outputLogits)
	if err != nil {
		return s, err
	}
	for row, i := range b.Index {
		if i < 0 {
			continue
		}
		s.Margins = append(s.Margins, float64(logits[labels*row+1])-float64(logits[labels*row]))
		s.Positive = append(s.Positive, x.samples[i].positive)
		s.Index = append(s.Index, i)
	}
	return s, nil
}

// joined concatenates the predictions of micro-batches.
func joined(parts []predictions) *predictions {
	s := &predictions{}
	for _, p := range parts {
		s.Margins, s.Positive, s.Index = append(s.Margins, p.Margins...), append(s.Positive, p.Positive...), append(s.Index, p.Index...)
	}
	return s
}

// score runs a loaded program over all of x.
func score(ctx context.Context, r *engine.Executable, x *examples) (*predictions, error) {
	found, err := x.evaluation(0).Records(ctx, r, 0, train.Part{})
	if err != nil {
		return nil, err
	}
	return joined(found.List()), nil
}

// probabilities returns the probabilities of flagging: the sigmoid of the margins divided by a temperature.
func (s *predictions) probabilities(temperature float64) []float64 {
	p := make([]float64, len(s.Margins))
	for i, m := range s.Margins {
		p[i] = metric.Sigmoid(m / temperature)
	}
	return p
}

// metrics returns the metrics of an evaluation, at a threshold of one half.
func (s *predictions) metrics() (map[string]float64, error) {
	p := s.probabilities(1)
	r, err := metric.Rank(p, s.Positive)
	if err != nil {
		return nil, err
	}
	c := r.At(0.5)
	m := map[string]float64{
		"eval_loss": metric.LogLoss(s.Margins, s.Positive), "accuracy": c.Accuracy(), "precision": c.Precision(), "recall": c.Recall(), "f1": c.F1(),
	}
	// A part of the validation texts may have a single class.
	for name, v := range map[string]float64{"roc_auc": r.ROCAUC(), "pr_auc": r.AveragePrecision()} {
		if !math.IsNaN(v) {
			m[name] = v
		}
	}
	return m, nil
}
