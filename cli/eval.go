package cli

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

type evalCmd struct {
	pick
}

// Help implements kong.HelpProvider.
func (evalCmd) Help() string {
	return `The held-out data is that of the run; settings can be changed by flags. Of a
run its best checkpoint is measured, with the figures that training's own
evaluation of it gave. What is written besides (reports, a threshold, an interval)
goes to RUN/eval/step-N and changes nothing that belongs to another checkpoint.

Examples:
  snug eval runs/quickstart
  snug eval runs/quickstart --checkpoint last
  snug eval runs/quickstart/checkpoints/step-00000300 --training.eval_batches 10`
}

// Run implements the verb.
func (e *evalCmd) Run(a *app) (err error) {
	o, err := a.openFor(e.pick, true)
	if err != nil {
		return err
	}
	s, err := a.resolved(o.config)
	if err != nil {
		return err
	}
	p, err := s.compileEvaluation()
	if err != nil {
		return err
	}
	dir := checkpoint.RunOf(o.Path)
	run, err := rundir.Look(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	d, err := s.system.Open(a.ctx, s.config, s.model, system.Env{Dir: run, Cache: s.cache(dir), Log: func(string, ...any) {}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeData(d)) }()
	if d.Evaluator == nil {
		return fmt.Errorf("%s: nothing is held out (data.held_out_fraction is 0)", e.Path)
	}
	r, err := s.ready(p, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	ck, err := checkpoint.Load(o.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ck.Close()) }()
	if err := train.LoadStates(r, ck, graph.Weight, graph.Buffer); err != nil {
		return err
	}
	m, err := train.Evaluate(a.ctx, d.Evaluator, r, 0)
	if err != nil {
		return err
	}
	reports := ""
	if d.Report != nil {
		reports = a.evaluated(o.Path)
		if err := os.MkdirAll(reports, 0o777); err != nil {
			return err
		}
		to, err := rundir.Look(reports)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Report(a.ctx, r, o.Update, to), to.Close()); err != nil {
			return err
		}
	}
	if a.asJSON {
		for _, b := range d.Baselines {
			m["baseline_"+b.Name] = b.Value
		}
		return a.json(struct {
			*checkpoint.Chosen
			Metrics map[string]checkpoint.Float `json:"metrics"`
			Reports string                      `json:"reports,omitempty"`
		}{o.Chosen, toFloats(m), reports})
	}
	a.printf("%v, update %d\n", o, o.Update)
	for _, k := range sortedKeys(m) {
		a.printf("  %-18s %s\n", strings.ReplaceAll(k, "_", " "), figure(d.Goal, k, m[k]))
	}
	for _, b := range d.Baselines {
		a.printf("  %-18s %.4f\n", "baseline "+b.Name, b.Value)
	}
	if reports != "" {
		a.printf("reports: %s\n", reports)
	}
	return nil
}

// evaluated is the folder for what is written of the evaluation of a
// checkpoint. One with other settings than the run's has a folder of its own,
// where nothing looks for a decision.
func (a *app) evaluated(path string) string {
	dir := checkpoint.Evaluated(path)
	h := fnv.New32a()
	changed := false
	for _, o := range a.overrides {
		if section, _, _ := strings.Cut(o.Key, "."); section != "hardware" {
			changed = true
			_, _ = fmt.Fprintf(h, "%s=%s\n", o.Key, o.Text) // a hash never fails to write
		}
	}
	if changed {
		return filepath.Clean(fmt.Sprintf("%s-%08x", dir, h.Sum32()))
	}
	return dir
}

// figure is a metric as evaluations print it: the goal's in full.
func figure(g train.Goal, name string, v float64) string {
	if name == g.Name {
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
