package system

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// roundings maps the values of training.master_weights to how weights are stored.
var roundings = map[string]graph.RoundingMode{"fp32": graph.Exact, "stochastic": graph.Stochastic, "compensated": graph.Compensated}

// gradients maps the values of training.gradient_dtype to formats of gradients.
var gradients = map[string]graph.DType{"fp32": graph.F32, "bf16": graph.BF16}

// Training returns the part of a training step that the common section "training" determines.
func Training(c *config.Config, s Shape) engine.Training {
	t := &c.Training
	tr := engine.Training{
		Accumulation: s.Accumulation, EvalInputs: s.Rows(false) != s.MicroBatch,
		Optimizer: engine.Optimizer{
			Rule: engine.Rule(t.Optimizer), Beta1: t.Beta1, Beta2: t.Beta2, Eps: t.Eps, WeightDecay: t.WeightDecay, MaxGradNorm: t.MaxGradNorm, Clip: engine.ClipNorm(t.ClipNorm),
			Gradients: gradients[t.GradientDtype],
			Round:     graph.Rounding{Mode: roundings[t.MasterWeights], Seed: t.Seed},
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
