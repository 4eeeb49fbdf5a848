package moderation

import (
	"context"
	"fmt"

	"github.com/snug-ml/snug/inference"
)

// predictor applies a classifier to data.
type predictor struct{ *Classifier }

// predictBatch is the number of texts that are sorted by length together.
const predictBatch = 1024

// Batch implements [inference.Predictor].
func (p predictor) Batch() int { return predictBatch }

// TextField implements [inference.Predictor].
func (p predictor) TextField() string { return p.config.Data.TextField }

// Predict implements [inference.Predictor]. It returns the label, prob_NAME for the class that is flagged,
// the threshold, and whether the text was cut to the model's length.
func (p predictor) Predict(ctx context.Context, inputs []inference.Input) ([][]inference.Answer, error) {
	texts := make([]*Encoded, len(inputs))
	for i, in := range inputs {
		text, err := in.Text(p.TextField())
		if err != nil {
			return nil, err
		}
		if texts[i], err = p.Encode(text); err != nil {
			return nil, fmt.Errorf("%s: %w", in.Where(), err)
		}
	}
	probs, err := p.Probabilities(ctx, texts)
	if err != nil {
		return nil, err
	}
	out := make([][]inference.Answer, len(inputs))
	v := &p.DecisionRule
	for i, prob := range probs {
		out[i] = []inference.Answer{{
			{Name: "label", Value: p.Label(prob, v.Threshold)}, {Name: "prob_" + v.Positive, Value: prob},
			{Name: "threshold", Value: v.Threshold}, {Name: "cut", Value: texts[i].Cut},
		}}
	}
	return out, nil
}
