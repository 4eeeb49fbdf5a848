package system

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
)

// Training is the part of a training step that the common section "training"
// decides.
func Training(c *config.Config, s Shape) engine.Training {
	t := &c.Training
	tr := engine.Training{
		Accumulation: s.Accumulation, EvalInputs: s.Rows(false) != s.MicroBatch,
		Optimizer: engine.Optimizer{
			Rule: engine.Rule(t.Optimizer), Beta1: t.Beta1, Beta2: t.Beta2, Eps: t.Eps, WeightDecay: t.WeightDecay, MaxGradNorm: t.MaxGradNorm,
		},
	}
	if s.LossScaling {
		ls := t.LossScale
		tr.LossScaling = &engine.LossScaling{
			Initial: ls.Init, Growth: ls.GrowthFactor, Backoff: ls.BackoffFactor, Interval: ls.GrowthInterval,
		}
	}
	return tr
}
