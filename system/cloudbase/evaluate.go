package cloudbase

import (
	"context"
	"iter"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
)

// collapsed is the spread of predictions, relative to that of the true values, below which a model is called
// collapsed.
const collapsed = 0.3

// predictions holds the predictions for a micro-batch of windows.
type predictions struct {
	Windows   int
	Predicted []float64 // km; nil for masked images
	Truth     []float64 // km; unknown if there is no label
	Loss      float64   // sum of weight times loss
}

// measured holds the predictions for a whole list of windows.
type measured struct {
	*predictions
	windows []window
}

// spread returns windows for at most batches micro-batches of rows (0: all), evenly spaced over the list.
func spread(list []window, batches, rows int) []window {
	most := batches * rows
	if batches == 0 || most >= len(list) {
		return list
	}
	some := make([]window, most)
	for i := range some {
		some[i] = list[i*len(list)/most]
	}
	return some
}

// evaluation measures the predictions for windows, in at most batches micro-batches spread over all of them
// (0: all).
func (r *reader) evaluation(list []window, batches int) *train.Evaluation[predictions] {
	return &train.Evaluation[predictions]{
		Batches: func(ctx context.Context, x *engine.Executable) iter.Seq2[train.EvalBatch[predictions], error] {
			return func(yield func(train.EvalBatch[predictions], error) bool) {
				weights, err := train.Inputs{Runner: x, Eval: true}.F32(inputWeights)
				if err != nil {
					yield(train.EvalBatch[predictions]{}, err)
					return
				}
				at := 0
				for part := range slices.Chunk(spread(list, batches, len(weights)), len(weights)) {
					if !yield(r.batch(part, at), ctx.Err()) {
						return
					}
					at += len(part)
				}
			}
		},
		Metrics: func(x *engine.Executable, parts []predictions) (map[string]float64, error) {
			scales, err := scalesOf(x)
			if err != nil {
				return nil, err
			}
			return joined(parts).metrics(scales.Base.Mean)
		},
	}
}

// batch makes a micro-batch of windows, the first of which is number at of the pass.
func (r *reader) batch(list []window, at int) train.EvalBatch[predictions] {
	examples := make([]example, len(list))
	for i, w := range list {
		examples[i] = example{w, 0, int64(at + i)}
	}
	return train.EvalBatch[predictions]{
		Fill: func(in train.Inputs) error { return r.fill(examples, in) },
		Read: func(out train.Outputs) (j predictions, err error) {
			j.Windows = len(list)
			if j.Loss, err = out.Sum(); err != nil {
				return j, err
			}
			for _, w := range list {
				j.Truth = append(j.Truth, w.flight.Base[w.middle(r.model.Frames)])
			}
			if !out.Has(outputBase) {
				return j, nil
			}
			base, err := out.F32(outputBase)
			if err != nil {
				return j, err
			}
			for _, v := range base[:len(list)] {
				j.Predicted = append(j.Predicted, float64(v))
			}
			return j, nil
		},
	}
}

// joined concatenates the predictions of micro-batches.
func joined(parts []predictions) *predictions {
	j := &predictions{}
	for _, p := range parts {
		j.Windows, j.Loss = j.Windows+p.Windows, j.Loss+p.Loss
		j.Predicted, j.Truth = append(j.Predicted, p.Predicted...), append(j.Truth, p.Truth...)
	}
	return j
}

// measure evaluates a loaded program on all of the windows.
func (r *reader) measure(ctx context.Context, x *engine.Executable, list []window) (*measured, error) {
	found, err := r.evaluation(list, 0).Records(ctx, x, 0, train.Part{})
	if err != nil {
		return nil, err
	}
	return &measured{joined(found.List()), list}, nil
}

// metrics returns the metrics of an evaluation. base is the mean of the training labels, which is the
// reference for the skill.
func (j *predictions) metrics(base float64) (map[string]float64, error) {
	n := float64(j.Windows)
	if j.Predicted == nil { // masked images have no labels
		return map[string]float64{"eval_loss": j.Loss / n}, nil
	}
	g, err := metric.Regress(j.Predicted, j.Truth)
	if err != nil {
		return nil, err
	}
	return map[string]float64{
		"eval_loss": j.Loss / n, "rmse": g.RMSE, "mae": g.MAE, "r2": g.R2, "skill": metric.Skill(g.MSE, constantError(j.Truth, base)), "spread": g.Spread,
	}, nil
}

// constantError returns the mean squared error of predicting one value.
func constantError(truth []float64, value float64) (mse float64) {
	for _, t := range truth {
		mse += (t - value) * (t - value) / float64(len(truth))
	}
	return mse
}

// monitored returns the metric that selects the best weights.
func monitored(c *config.Config) train.Metric {
	if config.Of[Phases](c).Run == "mae" {
		return train.Metric{Name: "eval_loss"}
	}
	return train.Metric{Name: "rmse"}
}
