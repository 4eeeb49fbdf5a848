package dynamo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/rundir"
)

// examples is the number of texts of a task shown on a page.
const examples = 8

// report measures the weights in a loaded program and writes the result and a page to dir.
func (j *job) report(ctx context.Context, r *engine.Executable, update int64, dir *rundir.Dir) error {
	res := &result{Stage: j.stage, Update: update}
	page := &report.Page{Title: "snug dynamo: " + folder(j.stage)}
	var err error
	switch j.stage {
	case stageEncoder:
		err = j.reportEncoder(ctx, r, res, page)
	case stageRouter, stageJoint:
		err = j.reportRouted(ctx, r, res, page)
	default:
		err = j.reportTask(ctx, r, res, page)
	}
	if err != nil {
		return err
	}
	page.Sections = append(page.Sections, report.Section{Title: "Figures", Tables: []report.Table{figures(res.Metrics)}})
	if err := page.Save(dir); err != nil {
		return err
	}
	return res.save(dir)
}

// figures returns metrics as a table.
func figures(m map[string]float64) report.Table {
	t := report.Table{Header: []string{"metric", "value"}}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		t.Rows = append(t.Rows, []string{strings.ReplaceAll(k, "_", " "), fmt.Sprintf("%.4f", m[k])})
	}
	return t
}

func (j *job) reportEncoder(ctx context.Context, r *engine.Executable, res *result, page *report.Page) error {
	res.Goal = lossName
	page.Lead = "The encoder that the tasks share was trained to predict masked tokens. It is frozen from here on."
	if j.maskedLM.HeldOut == nil {
		return nil
	}
	m, err := train.Evaluate(ctx, j.maskedLM.evaluation(), r, 0)
	if err != nil {
		return err
	}
	res.Metrics, res.Value = m, m[lossName]
	res.Gain = j.floor - res.Value
	page.Lead += fmt.Sprintf(" Held-out tokens are predicted with a loss of %.3f nats; token frequencies alone give %.3f.", res.Value, j.floor)
	return nil
}

func (j *job) reportTask(ctx context.Context, r *engine.Executable, res *result, page *report.Page) (err error) {
	m, _, err := j.measure(ctx, r)
	if err != nil {
		return err
	}
	goal := monitoredOf(j.stage)
	res.Goal, res.Value, res.Metrics = goal.Name, m[goal.Name], m
	res.Gain = res.Value - j.floor
	if !goal.Higher {
		res.Gain = -res.Gain
	}
	a, err := newTaskPredictor(j.config, j.tok, []string{j.stage}, false, false, r.Backend())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	missing, err := a.from(r)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("the trained program lacks %s", missing[0].Name)
	}
	held := j.held[0].texts
	answers, err := a.answers(ctx, j.stage, held, nil)
	if err != nil {
		return err
	}
	common := constant(j.stage, j.train[0].texts, held)
	if kindOf(j.stage) == write {
		for k, v := range written(held, answers) {
			m[k] = v
		}
		for k, v := range written(held, common) {
			m["baseline_"+k] = v
		}
	}
	own, base := meanScore(j.stage, held, answers), meanScore(j.stage, held, common)
	m["score"], m["baseline_score"] = own, base
	page.Lead = fmt.Sprintf("The task %s on %s: score %.3f; a constant answer scores %.3f. The adapter and the head train %s of the parameters.",
		j.stage, size.Of(len(held), "held-out text"), own, base, share(r.Program()))
	page.Sections = []report.Section{{Title: "Examples", Tables: []report.Table{shown(j.stage, held, answers)}}}
	return nil
}

// share returns the trained part of a program's parameters.
func share(p *engine.Program) string {
	all, trained := p.Parameters()
	return fmt.Sprintf("%.1f %%", 100*float64(trained)/float64(all))
}

// shown returns a table of some texts with their answers.
func shown(name string, xs []text, as []answer) report.Table {
	t := report.Table{Caption: name, Text: true, Header: []string{"text", "wanted", "answered"}}
	for i := range min(examples, len(as)) {
		in, want, got := xs[i].Input, xs[i].Output, as[i].Text
		if xs[i].Question != "" {
			in = xs[i].Question + " / " + in
		}
		if kindOf(name) == classify {
			want, got = fmt.Sprint(xs[i].Label), fmt.Sprintf("%d (%.2f)", as[i].Label, as[i].Share)
		}
		t.Rows = append(t.Rows, []string{in, want, got})
	}
	return t
}

// reportRouted compares the ways to dispatch texts, for phases 2 and 3.
func (j *job) reportRouted(ctx context.Context, r *engine.Executable, res *result, page *report.Page) (err error) {
	m, routings, err := j.measure(ctx, r)
	if err != nil {
		return err
	}
	res.Goal, res.Value, res.Metrics = "routing_accuracy", m["routing_accuracy"], m
	res.Gain = res.Value - 1/float64(len(j.tasks))
	a, err := newTaskPredictor(j.config, j.tok, j.tasks, true, true, r.Backend())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	missing, err := a.from(r)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		l := loader{j.config, j.dir(), j.env.From, j.env.Log, missing, a.r.ChangeState}
		if err := l.stages(j.tasks...); err != nil {
			return err
		}
	}
	xs := map[string][]text{}
	for _, t := range j.held {
		xs[t.task] = t.texts
	}
	c, err := compare(ctx, a, xs, j.config.Training.Seed)
	if err != nil {
		return err
	}
	res.Systems = c.scores
	table := report.Table{
		Caption: "Score of each task by how its adapter is chosen: accuracy for sentiment, word F1 for answers, ROUGE-L for texts. Where a router decides, a text sent to another task scores 0; the other columns are given the task.",
		Header:  append(append([]string{"adapter"}, j.tasks...), "mean"),
	}
	for _, w := range ways(j.tasks) {
		row, sum := []string{w.name}, 0.0
		for _, name := range j.tasks {
			row, sum = append(row, fmt.Sprintf("%.3f", c.scores[w.name][name])), sum+c.scores[w.name][name]
		}
		mean := sum / float64(len(j.tasks))
		c.scores[w.name]["mean"] = mean
		m["score_"+strings.ReplaceAll(strings.ReplaceAll(w.name, ", ", "_"), " ", "_")] = mean
		table.Rows = append(table.Rows, append(row, fmt.Sprintf("%.3f", mean)))
	}
	page.Lead = fmt.Sprintf("The router finds the task of %.1f %% of the held-out texts. Mean score over the tasks: %.3f with its choice, %.3f when the task is given, %.3f with all adapters mixed equally.",
		100*res.Value, c.scores[wayHard]["mean"], c.scores[wayOracle]["mean"], c.scores[wayUniform]["mean"])
	page.Sections = append(page.Sections,
		report.Section{Title: "Dispatch", Tables: []report.Table{table}},
		report.Section{Title: "Routing", Figures: []report.Figure{{Caption: "Held-out texts by their task and the router's choice.", Drawing: report.Heatmap{Matrix: *routings.matrix}}}})
	var shows []report.Table
	for _, name := range j.tasks {
		shows = append(shows, shown(name, xs[name], c.answers[name]))
	}
	page.Sections = append(page.Sections, report.Section{Title: "Examples", Tables: shows})
	return nil
}
