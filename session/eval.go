package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// Evaluation is the result of a checkpoint on held-out data.
type Evaluation struct {
	Metrics   map[string]float64
	Monitor   train.Metric
	Baselines []system.Baseline
	// Reports says whether reports were written.
	Reports bool
}

// Evaluate measures a checkpoint with the same figures, to the bit, as the evaluation during training, using
// no more memory than the forward half needs. The system's reports go to the folder reports in the run
// directory, which is created if there are any. If only the reports fail, there are both a result and an error.
func (s *Setup) Evaluate(ctx context.Context, of *checkpoint.Chosen, reports string) (e *Evaluation, err error) {
	p, err := s.compileEvaluation(s.Model.Training)
	if err != nil {
		return nil, err
	}
	dir := checkpoint.RunOf(of.Path)
	run, err := rundir.Look(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	below, err := filepath.Rel(dir, reports)
	if err != nil || !filepath.IsLocal(below) {
		return nil, fmt.Errorf("%s is not in %s", reports, dir)
	}
	if err := run.Unlinked(below); err != nil {
		return nil, err
	}
	d, err := s.heldOut(ctx, of, run, reports)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, CloseData(d)) }()
	if d.Evaluator == nil {
		return nil, fmt.Errorf("%s: nothing is held out (data.held_out_fraction is 0 and data.validation names no files)", of.Path)
	}
	c, err := checkpoint.Inspect(of.Path)
	if err == nil {
		err = s.computeAs(c)
	}
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(p.States, func(x *graph.State) bool { return x.Role == graph.Frozen }) {
		d.Load = nil // the checkpoint has every weight, so the initial weights are not read
	} else if d.Belongs != nil {
		if err := d.Belongs(of.Path); err != nil {
			return nil, err
		}
	}
	reportTo := func(report func(to *rundir.Dir) error) error {
		to, err := run.Sub(below)
		if err != nil {
			return err
		}
		return errors.Join(report(to), to.Close())
	}
	var unwritten error
	err = s.use(p, d, of, func(x *engine.Executable) error {
		m, err := train.Evaluate(ctx, d.Evaluator, x, 0)
		if err != nil {
			return err
		}
		e = &Evaluation{Metrics: m, Monitor: d.Monitor, Baselines: d.Baselines}
		if d.Report != nil && s.Model.Examination == nil {
			unwritten = reportTo(func(to *rundir.Dir) error { return d.Report(ctx, x, of.Update, to) })
		}
		return nil
	})
	if err != nil || d.Report == nil {
		return e, err
	}
	if s.Model.Examination != nil {
		unwritten = reportTo(func(to *rundir.Dir) error { return s.examine(ctx, d, of, to) })
	}
	if unwritten != nil {
		return e, fmt.Errorf("the figures are complete, but their reports could not be written: %w", unwritten)
	}
	e.Reports = true
	return e, nil
}

// examine reports on a checkpoint with the model's examination.
func (s *Setup) examine(ctx context.Context, d *system.Run, of *checkpoint.Chosen, to *rundir.Dir) error {
	p, err := s.compileEvaluation(s.Model.Examination)
	if err != nil {
		return err
	}
	return s.use(p, d, of, func(x *engine.Executable) error { return d.Report(ctx, x, of.Update, to) })
}

// use loads a program with the weights of a checkpoint for f, and closes it: there is memory for one at a time.
func (s *Setup) use(p *engine.Program, d *system.Run, of *checkpoint.Chosen, f func(x *engine.Executable) error) error {
	x, err := s.Load(p, d)
	if err != nil {
		return err
	}
	if err = loadWeights(x, of.Path); err == nil {
		err = f(x)
	}
	return errors.Join(err, x.Close())
}

// heldOut opens the data that a checkpoint is evaluated on: the data of its run, or what flags name instead.
// The data of the run is not prepared again if the run learned from something else. Other data is prepared in
// the folder other and read with the checkpoint's tokenizer, because ids of another tokenizer are meaningless
// to the model.
func (s *Setup) heldOut(ctx context.Context, of *checkpoint.Chosen, run *rundir.Dir, other string) (*system.Run, error) {
	var flags []string
	for _, v := range s.Config.Values() {
		if v.Origin.Kind == config.Flag && (change{Value: v}).settled(&s.System) {
			flags = append(flags, v.Key)
		}
	}
	from, err := checkpoint.FromOf(of.Path)
	if err != nil {
		return nil, err
	}
	if len(flags) == 0 {
		c, err := checkpoint.Load(of.Path)
		if err != nil {
			return nil, err
		}
		if err := c.Close(); err != nil {
			return nil, err
		}
		s.ofPhase = c.Manifest.Lineage != nil
		d, err := s.open(ctx, s.withTokenizer(of.Path), s.Model, system.Env{Dir: run, Cache: s.Cache(run.Path()), Position: position(c), From: from, Log: silent})
		if err != nil {
			err = fmt.Errorf("cannot evaluate %s on the data of its run (--data.source names other data): %w", of.Path, err)
		}
		return d, err
	}
	own := *s.Config
	for _, key := range flags {
		if strings.HasPrefix(key, "data.tokenizer.") {
			return nil, usage("--%s: a checkpoint is evaluated with its own tokenizer; omit the flag", key)
		}
	}
	if own.Data.Tokenizer.Path == "" && token.InFolder(of.Path) {
		own.Data.Tokenizer.Path = of.Path
	}
	if own.Data.CacheDir == "" {
		own.Data.CacheDir = filepath.Join(other, dataFolder)
	}
	return s.open(ctx, &own, s.Model, system.Env{Dir: run, Cache: own.Data.CacheDir, From: from, Log: silent})
}

// withTokenizer returns the configuration with the tokenizer stored in the checkpoint at path, if the one
// that the configuration names is gone. A model needs nothing else from the folder that it was made from.
func (s *Setup) withTokenizer(path string) *config.Config {
	if !token.InFolder(path) {
		return s.Config
	}
	for _, v := range s.Config.Values() {
		if v.Text == "" || v.Key != "data.tokenizer.path" && v.Key != "model.folder" || strings.Contains(v.Text, "://") {
			continue
		}
		if _, err := os.Stat(v.Text); errors.Is(err, fs.ErrNotExist) {
			own := *s.Config
			own.Data.Tokenizer.Path = path
			return &own
		}
	}
	return s.Config
}

// compileEvaluation compiles a program that evaluates exactly as the training program does, to the bit, but
// without the states that only training needs; or the program of an examination. It rejects one that does not
// fit.
func (s *Setup) compileEvaluation(training func(system.Shape) engine.Training) (*engine.Program, error) {
	c, err := s.Settings(s.Precision)
	if err != nil {
		return nil, err
	}
	t := plan.OnHost(s.Host, plan.Rates{})
	t.Traits, t.Budget = s.Backend.Traits(), int64(s.Config.Hardware.MemoryBudget)
	if s.Card != nil {
		if t, err = s.Target(); err != nil {
			return nil, err
		}
	}
	if err := s.Model.Least.Check(c, t, s.Model.LeastRows); err != nil {
		return nil, err
	}
	c = s.chunked(c, t)
	p, err := engine.CompileEvaluation(training(s.shape(c)), engine.CompileOptions{Traits: &t.Traits, ComputeDType: plan.ComputeDType(c.Precision), TF32: plan.TF32(c.Precision)})
	if err != nil {
		return nil, err
	}
	r := plan.Run{Settings: c}
	if r.Workspace, err = s.Backend.Workspace(p); err != nil {
		return nil, err
	}
	if report := plan.New(p, t, r); !report.Fits {
		return nil, &plan.DoesNotFit{Report: report}
	}
	return p, nil
}

// loadWeights copies the weights of the checkpoint at path into a loaded program.
func loadWeights(x *engine.Executable, path string) error {
	c, err := checkpoint.Load(path)
	if err != nil {
		return err
	}
	return errors.Join(train.LoadStates(x, c, graph.Weight, graph.Buffer), c.Close())
}
