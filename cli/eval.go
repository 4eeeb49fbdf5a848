package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

type evalCmd struct {
	Path string `arg:"" name:"run" help:"Run directory or checkpoint folder."`
}

// Help implements kong.HelpProvider.
func (evalCmd) Help() string {
	return `The held-out data is that of the run; settings can be changed by flags.

Examples:
  snug eval runs/quickstart
  snug eval runs/quickstart/checkpoints/step-00000300 --training.eval_batches 10`
}

// Run implements the verb.
func (e *evalCmd) Run(a *app) (err error) {
	o, err := a.openFor(e.Path, true)
	if err != nil {
		return err
	}
	s, err := resolved(o.config)
	if err != nil {
		return err
	}
	c, err := s.settings(s.precision)
	if err != nil {
		return err
	}
	c.Recompute = pass.RecomputeNone // nothing is kept for a backward half
	p, err := s.compile(c, nil)
	if err != nil {
		return err
	}
	dir := filepath.Dir(filepath.Dir(o.path)) // RUN/checkpoints/step-N
	cache := s.config.Data.CacheDir
	if cache == "" {
		cache = filepath.Join(dir, "data")
	}
	run, err := rundir.Look(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	d, err := s.system.Open(a.ctx, s.config, s.model, system.Env{Dir: run, Cache: cache, Log: func(string, ...any) {}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeData(d)) }()
	if d.Evaluate == nil {
		return fmt.Errorf("%s: nothing is held out (data.held_out_fraction is 0)", e.Path)
	}
	r, err := p.Load(s.on)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	ck, err := checkpoint.Load(o.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ck.Close()) }()
	if d.Load != nil {
		if err := d.Load(r); err != nil {
			return err
		}
	}
	if err := train.LoadStates(r, ck, graph.Weight, graph.Buffer); err != nil {
		return err
	}
	m, err := d.Evaluate(r)(a.ctx, 0)
	if err != nil {
		return err
	}
	if d.Report != nil {
		if err := d.Report(a.ctx, r, ck.State.Update); err != nil {
			return err
		}
	}
	for _, b := range d.Baselines {
		m["baseline_"+b.Name] = b.Value
	}
	if a.asJSON {
		return a.json(map[string]any{"checkpoint": o.path, "update": ck.State.Update, "metrics": toFloats(m)})
	}
	a.printf("%s, update %d\n", o.path, ck.State.Update)
	for _, k := range sortedKeys(m) {
		a.printf("  %-18s %.4f\n", strings.ReplaceAll(k, "_", " "), m[k])
	}
	return nil
}
