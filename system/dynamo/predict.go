package dynamo

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
)

// predictor answers texts with a checkpoint: for the task of a phase 1 checkpoint, or for the task that the
// router chooses in phases 2 and 3.
type predictor struct {
	*taskPredictor
	one string // the only task; empty if the router chooses
}

// pretrains reports whether a configuration trains the encoder, which solves no task by itself.
func pretrains(c *config.Config) bool { return stage(c) == stageEncoder }

func newPredictor(c *config.Config, dir string, on engine.Backend) (p inference.Predictor, err error) {
	t, err := token.LoadFolder(dir)
	if err != nil {
		return nil, err
	}
	tok, err := newTextEncoder(t, c)
	if err != nil {
		return nil, err
	}
	s, tasks := stage(c), config.Of[Model](c).Tasks
	if pretrains(c) {
		return nil, fmt.Errorf("%s: the encoder alone cannot predict; name a later phase", dir)
	}
	k := &predictor{}
	if isTask(s) {
		k.one, tasks = s, []string{s}
	}
	if k.taskPredictor, err = newTaskPredictor(c, tok, tasks, k.one == "", s == stageJoint && config.Of[Router](c).Dispatch == "soft", on); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Close())
		}
	}()
	from, err := checkpoint.FromOf(dir)
	if err != nil {
		return nil, err
	}
	l := loader{c, rootOf(dir), from, func(string, ...any) {}, k.parameters(), k.r.ChangeState}
	if err := l.encoder(); err != nil {
		return nil, err
	}
	ck, err := checkpoint.Load(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ck.Close()) }()
	if l.states, err = system.CopyStates(ck, l.beside(), k.r.ChangeState); err != nil {
		return nil, err
	}
	if s == stageRouter {
		return k, l.stages(tasks...)
	}
	return k, l.stages()
}

// Batch implements [inference.Predictor].
func (p *predictor) Batch() int { return p.rows }

// TextField implements [inference.Predictor].
func (p *predictor) TextField() string { return "text" }

// Remark implements [inference.Predictor].
func (p *predictor) Remark() string { return "" }

// Predict implements [inference.Predictor]. An input with a field "question" asks for a part of its text.
// Texts are grouped by task.
func (p *predictor) Predict(ctx context.Context, inputs []inference.Input) ([][]inference.Answer, error) {
	xs := make([]text, len(inputs))
	for i, in := range inputs {
		var err error
		if xs[i].Input, err = in.Text(p.TextField()); err != nil {
			return nil, err
		}
		// Not every input has a question.
		if q, err := in.Text(fieldQuestion); err == nil {
			xs[i].Question = q
		}
		xs[i].Where = in.Where()
	}
	var routes [][]float32
	chosen := make([]int, len(xs))
	if p.one == "" {
		var err error
		if routes, err = p.routing(ctx, xs); err != nil {
			return nil, err
		}
		for i, r := range routes {
			chosen[i] = argmax(r)
		}
	}
	out := make([][]inference.Answer, len(xs))
	for number, name := range p.tasks {
		var group []text
		var gates [][]float32
		var places []int
		for i := range xs {
			if chosen[i] == number {
				group, places = append(group, xs[i]), append(places, i)
				if routes != nil {
					gates = append(gates, routes[i])
				}
			}
		}
		answers, err := p.answers(ctx, name, group, gates)
		if err != nil {
			return nil, err
		}
		for k, a := range answers {
			certainty := 1.0
			if routes != nil {
				certainty = float64(routes[places[k]][number])
			}
			out[places[k]] = []inference.Answer{fields(name, certainty, a)}
		}
	}
	return out, nil
}

// fields returns the same fields for every task, so that the answers make a table. The label of a
// classification is its answer.
func fields(task string, certainty float64, a answer) inference.Answer {
	f := inference.Answer{{Name: "task", Value: task}, {Name: "routing", Value: rounded(certainty)}}
	if kindOf(task) == classify {
		return append(f, inference.Field{Name: "answer", Value: fmt.Sprint(a.Label)}, inference.Field{Name: "probability", Value: rounded(a.Share)})
	}
	return append(f, inference.Field{Name: "answer", Value: a.Text}, inference.Field{Name: "probability", Value: nil})
}

func rounded(p float64) float64 { return math.Round(p*1e4) / 1e4 }
