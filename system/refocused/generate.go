package refocused

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/system"
)

// language returns the model of a checkpoint.
func language(c *config.Config, dir string) (*inference.Language, error) {
	t, err := token.LoadFolder(dir)
	if err != nil {
		return nil, err
	}
	l := &inference.Language{
		Cached: networkOf(c), Tokenizer: t,
		Open: func() (inference.Weights, error) {
			return openWeights(c, dir, config.Of[system.BaseWeights](c).DType())
		},
	}
	// A model trained in bf16 was trained with weights rounded in the same way.
	if c.Training.MixedPrecision == "bf16" {
		l.Store = graph.BF16
	}
	return l, nil
}
