package moderation

import (
	"context"
	"math"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
)

// scored is what a model says of labelled texts.
type scored struct {
	// margins are the logit of flagging less that of letting through.
	margins  []float64
	positive []bool
	// index of each text in its split.
	index []int
}

// score runs the "eval" functions of a loaded program over x, through the
// inputs of a slot, at most batches micro-batches (0: all).
func score(ctx context.Context, r *engine.Executable, slot int, x *examples, batches int) (*scored, error) {
	l, err := data.NewExampleLoader(x, data.ExampleOptions{
		MicroBatches: 1, Buckets: x.buckets, Shuffle: batches > 0, Seed: 1, Epochs: 1,
	})
	if err != nil {
		return nil, err
	}
	s := &scored{}
	for u, err := range data.Pass(ctx, l, batches) {
		if err != nil {
			return nil, err
		}
		b := &u.Micro[0]
		if err := x.fill(b, train.Inputs{Runner: r, Slot: slot}); err != nil {
			return nil, err
		}
		fn := engine.Variant(engine.FuncEval, variant(x.buckets[b.Bucket].Length))
		if err := r.Run(fn, slot); err != nil {
			return nil, err
		}
		logits, err := r.OutputF32(fn, outputLogits)
		if err != nil {
			return nil, err
		}
		for row, i := range b.Index {
			if i < 0 {
				continue
			}
			s.margins = append(s.margins, float64(logits[labels*row+1])-float64(logits[labels*row]))
			s.positive = append(s.positive, x.samples[i].positive)
			s.index = append(s.index, i)
		}
	}
	return s, nil
}

// probabilities of flagging, the margins divided by a temperature.
func (s *scored) probabilities(temperature float64) []float64 {
	p := make([]float64, len(s.margins))
	for i, m := range s.margins {
		p[i] = metric.Sigmoid(m / temperature)
	}
	return p
}

// metrics are the figures of an evaluation, at a probability of a half.
func (s *scored) metrics() (map[string]float64, error) {
	p := s.probabilities(1)
	r, err := metric.Rank(p, s.positive)
	if err != nil {
		return nil, err
	}
	c := r.At(0.5)
	m := map[string]float64{
		"eval_loss": metric.LogLoss(s.margins, s.positive), "accuracy": c.Accuracy(), "precision": c.Precision(), "recall": c.Recall(), "f1": c.F1(),
	}
	// A part of the validation texts may have one class only.
	for name, v := range map[string]float64{"roc_auc": r.ROCAUC(), "pr_auc": r.AveragePrecision()} {
		if !math.IsNaN(v) {
			m[name] = v
		}
	}
	return m, nil
}
