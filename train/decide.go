package train

import (
	"context"
	"fmt"

	"github.com/snug-ml/snug/train/checkpoint"
)

// This file decides what a run does next, once per update. Processes that train together
// must all decide the same. Most of it follows from what they all know: the number of the
// update, its loss, the metrics of its evaluation. What only one of them can know (that
// it was interrupted, errors of its disk) is read in one place, [Job.decide].

// decision is what comes after an update.
type decision struct {
	fail error // the run cannot go on
	ask  bool  // it is time to check whether anything is learned
	best bool  // the state is the best so far, and will be saved
	save bool  // a save is due
	skip error // why a due save is not made
	end  ending
}

// ending is how a run ends.
type ending int

const (
	goOn        ending = iota
	done               // the last update is done
	early              // nothing improves any more
	interrupted        // the context ended, or Until was reached
)

// decide decides what comes after update u, with or without an evaluation.
func (j *Job) decide(ctx context.Context, u int64, measured bool) (d decision) {
	// A state that is not finite stays so, but a bad evaluation may be followed by a good one.
	if bad := j.badSave(); bad != nil && bad.Tensor != "" {
		d.fail = j.spoiled(u, bad)
		return d
	}
	if j.Save.Store != nil && j.logged(u) {
		if d.fail = j.Save.Store.Check(); d.fail != nil {
			return d
		}
	}
	d.ask = j.ask
	if !j.together(u) {
		return d
	}
	d.best = measured && j.bestAt == u && j.Save.Store != nil && j.Save.Store.KeepsBest()
	due := j.Save.Every > 0 && u > 0 && u%j.Save.Every == 0
	if !due && j.Save.Store != nil {
		due = j.Save.Store.Wants() // an earlier one failed, and its state is gone
	}
	if due && u < j.Updates && !d.best && j.saved != u {
		if d.save = finite(j.lastLoss); !d.save {
			d.skip = fmt.Errorf("the loss is %v", j.lastLoss) // it would displace a good one
		}
	}
	switch {
	case j.Eval.Early.Stops():
		d.end = early
	case u >= j.Updates:
		d.end = done
	case ctx.Err() != nil || j.Until > 0 && u >= j.Until:
		d.end = interrupted
	}
	return d
}

// logged reports whether update u is due for a log line.
func (j *Job) logged(u int64) bool {
	return j.LogEvery > 0 && u%j.LogEvery == 0 || u == j.Updates
}

// evaluationDue reports whether an evaluation within the run is due after update u and
// has not been done.
func (j *Job) evaluationDue(u int64) bool {
	return j.Eval.Evaluator != nil && j.Eval.Every > 0 && u > 0 && u%j.Eval.Every == 0 && u < j.Updates && j.together(u) && j.evaluated != u && !j.Eval.Early.Stops()
}

// judge processes the monitored metric after update u: it advances a plateau schedule and
// early stopping, and reports whether the evaluation is the best so far.
func (j *Job) judge(u int64, value float64) (best bool) {
	j.Schedule.Observe(j.Eval.Monitor, value)
	j.Eval.Early.Observe(j.Eval.Monitor, value)
	j.Learning.Evaluated(value)
	m := checkpoint.Metric{Name: j.Eval.Monitor.Name, Value: checkpoint.Float(value), HigherIsBetter: j.Eval.Monitor.Higher}
	if loss, ok := j.latest[lossMetric]; ok && m.Name != lossMetric {
		m.Loss = (*checkpoint.Float)(&loss)
	}
	if best = finite(value) && (j.best == nil || m.Better(*j.best)); best {
		j.best, j.bestAt = &m, u
	}
	return best
}

// failed returns why the run ends with an update, nil if it does not.
func (j *Job) failed(f *filler, s *Step) error {
	switch {
	case !j.outputs.scaled && (s.Skipped || !finite(s.Loss)):
		return j.diagnose(f, s)
	case s.Scale > 0 && s.Scale < j.StopAtScale:
		return &UnderflowError{s.Update, s.Scale, s.Loss, j.kept(), j.advice(Diverged)}
	}
	return nil
}
