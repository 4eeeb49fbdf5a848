package cloudbase

import (
	"context"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
)

// collapsed is the spread of predictions, as a share of that of the truths,
// below which a model is called collapsed.
const collapsed = 0.3

// judged is what a model says of windows.
type judged struct {
	windows   []window
	predicted []float64 // km
	truth     []float64 // km; unknown where there is none
	loss      float64   // sum of weight times loss
}

// judge runs the evaluation of a loaded program over windows, through the
// inputs of a slot, at most batches micro-batches spread over all of them (0:
// all).
func (r *reader) judge(ctx context.Context, run *engine.Executable, slot int, list []window, batches int) (*judged, error) {
	in := train.Inputs{Runner: run, Slot: slot}
	weights, err := in.F32(inputWeights)
	if err != nil {
		return nil, err
	}
	rows := len(weights)
	if most := batches * rows; batches > 0 && most < len(list) {
		some := make([]window, most)
		for i := range some {
			some[i] = list[i*len(list)/most]
		}
		list = some
	}
	j := &judged{windows: list}
	for at := 0; at < len(list); at += rows {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var batch []example
		for i, w := range list[at:min(at+rows, len(list))] {
			batch = append(batch, example{w, 0, int64(at + i)})
		}
		if err := r.fill(batch, in); err != nil {
			return nil, err
		}
		if err := run.Run(engine.FuncEval, slot); err != nil {
			return nil, err
		}
		sum, err := run.OutputF32(engine.FuncEval, engine.OutputSum)
		if err != nil {
			return nil, err
		}
		j.loss += float64(sum[0])
		var base []float32
		if run.Program().Func(engine.FuncEval).F.Output(outputBase) != nil {
			if base, err = run.OutputF32(engine.FuncEval, outputBase); err != nil {
				return nil, err
			}
		}
		for i, e := range batch {
			j.truth = append(j.truth, e.flight.Base[e.middle(r.model.Frames)])
			if base != nil {
				j.predicted = append(j.predicted, float64(base[i]))
			}
		}
	}
	return j, nil
}

// metrics are the figures of an evaluation. base is the mean of the training
// labels, what the skill is measured against.
func (j *judged) metrics(base float64) (map[string]float64, error) {
	n := float64(len(j.windows))
	if j.predicted == nil { // masked pictures have no labels
		return map[string]float64{"eval_loss": j.loss / n}, nil
	}
	g, err := metric.Regress(j.predicted, j.truth)
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		"eval_loss": j.loss / n, "rmse": g.RMSE, "mae": g.MAE, "r2": g.R2, "skill": metric.Skill(g.MSE, constantError(j.truth, base)), "spread": g.Spread,
	}, nil
}

// constantError is the mean square error of predicting one value.
func constantError(truth []float64, value float64) (mse float64) {
	for _, t := range truth {
		mse += (t - value) * (t - value) / float64(len(truth))
	}
	return mse
}

// goal is the metric that decides which weights are best.
func goal(c *config.Config) train.Goal {
	if config.Of[Phases](c).Run == "mae" {
		return train.Goal{Name: "eval_loss"}
	}
	return train.Goal{Name: "rmse"}
}
