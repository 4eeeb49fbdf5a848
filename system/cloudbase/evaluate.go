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

// spread are at most batches micro-batches of rows of the windows, spread over
// all of them (0: all).
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

// evaluation judges windows, at most batches micro-batches spread over all of
// them (0: all).
func (r *reader) evaluation(list []window, batches int) *train.Evaluation[judged] {
	return &train.Evaluation[judged]{
		Batches: func(ctx context.Context, x *engine.Executable) iter.Seq2[train.EvalBatch[judged], error] {
			return func(yield func(train.EvalBatch[judged], error) bool) {
				weights, err := train.Inputs{Runner: x}.F32(inputWeights)
				if err != nil {
					yield(train.EvalBatch[judged]{}, err)
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
		Metrics: func(x *engine.Executable, parts []judged) (map[string]float64, error) {
			scales, err := scalesOf(x)
			if err != nil {
				return nil, err
			}
			return joined(parts).metrics(scales.Base.Mean)
		},
	}
}

// batch are windows as a micro-batch, the first of which is number at of the pass.
func (r *reader) batch(list []window, at int) train.EvalBatch[judged] {
	examples := make([]example, len(list))
	for i, w := range list {
		examples[i] = example{w, 0, int64(at + i)}
	}
	return train.EvalBatch[judged]{
		Fill: func(in train.Inputs) error { return r.fill(examples, in) },
		Read: func(out train.Outputs) (j judged, err error) {
			j.windows = list
			if j.loss, err = out.Sum(); err != nil {
				return j, err
			}
			for _, w := range list {
				j.truth = append(j.truth, w.flight.Base[w.middle(r.model.Frames)])
			}
			if !out.Has(outputBase) {
				return j, nil
			}
			base, err := out.F32(outputBase)
			if err != nil {
				return j, err
			}
			for _, v := range base[:len(list)] {
				j.predicted = append(j.predicted, float64(v))
			}
			return j, nil
		},
	}
}

// joined are micro-batches as one.
func joined(parts []judged) *judged {
	j := &judged{}
	for _, p := range parts {
		j.windows, j.loss = append(j.windows, p.windows...), j.loss+p.loss
		j.predicted, j.truth = append(j.predicted, p.predicted...), append(j.truth, p.truth...)
	}
	return j
}

// judge runs the evaluation of a loaded program over all of the windows.
func (r *reader) judge(ctx context.Context, x *engine.Executable, list []window) (*judged, error) {
	found, err := r.evaluation(list, 0).Records(ctx, x, 0, train.Part{})
	if err != nil {
		return nil, err
	}
	return joined(found.List()), nil
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

// monitored is the metric that decides which weights are best.
func monitored(c *config.Config) train.Metric {
	if config.Of[Phases](c).Run == "mae" {
		return train.Metric{Name: "eval_loss"}
	}
	return train.Metric{Name: "rmse"}
}
