package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/remote"
	"github.com/snug-ml/snug/train/rundir"
)

type trainCmd struct {
	choice
	Out    string `help:"Run directory (default: runs/PRESET)." placeholder:"DIR" key:"run.out"`
	Resume bool   `help:"Continue the run in --out from its newest whole checkpoint; where a preset or --config is named, a run that has none begins." xor:"start"`
	Fresh  bool   `help:"Start over in a run directory that holds checkpoints, which are removed." xor:"start"`
	Phase  string `help:"Of a system that trains in phases: the one to run, or all." placeholder:"N" key:"phases.run"`
	Until  int64  `help:"Save and stop after so many updates; --resume goes on." placeholder:"N" min:"1" of:"updates"`
}

// Help implements kong.HelpProvider.
func (trainCmd) Help() string {
	return `Any setting can be given as a flag: --training.learning_rate 1e-3.

Examples:
  snug train                                  the quickstart, on the Go source tree
  snug train --training.max_steps 50          a shorter one
  snug train --config mine.yaml --out runs/a  settings from a file
  snug train --resume --out runs/a            go on where it stopped

snug config --presets lists the presets, snug config --reference refocused every
setting.

Ctrl-C finishes the update, saves and exits with code 4; a second one exits at
once. SIGTERM does the same within checkpoint.grace. Exit codes: 0 done, 1
failed, 2 wrong usage, 3 does not fit, 4 stopped with the state saved, 5 not
saved within the grace.`
}

// Run implements the verb.
func (t *trainCmd) Run(a *app) error {
	if err := t.ofRun(a); err != nil {
		return err
	}
	s, err := a.load(t.choice, t.chosen(), true)
	if err != nil {
		return err
	}
	dir := t.dir(s.config)
	if s.system.Phases != nil {
		if phases := s.system.Phases(s.config, dir); len(phases) > 0 {
			done, err := t.phases(a, s.config, phases, dir)
			return a.trained(map[string]any{"phases": done}, err)
		}
	}
	summary, err := t.one(a, s, dir, "", nil)
	return a.trained(summary, err)
}

// trained prints what came of training where JSON is wanted: of a run that was
// stopped too, whose summary says so.
func (a *app) trained(document any, err error) error {
	if a.asJSON && (err == nil || errors.Is(err, train.ErrStopped)) {
		return errors.Join(err, a.json(document))
	}
	return err
}

// one trains one run in dir, that of a phase unless its name is empty, and calls began once nothing can be refused any more.
func (t *trainCmd) one(a *app, s *setup, dir, phase string, began func() error) (*Summary, error) {
	r := &run{app: a, setup: s, dir: dir, phase: phase, resume: t.Resume, fresh: t.Fresh, until: t.Until, started: time.Now(), began: began}
	err := r.train()
	return r.summary, err
}

// dir is the run directory.
func (t *trainCmd) dir(c *config.Config) string {
	switch {
	case t.Out != "":
		return t.Out
	case c.Run.Out != "":
		return c.Run.Out
	case c.Preset != "":
		return filepath.Join("runs", c.Preset)
	}
	return filepath.Join("runs", c.System)
}

// run is a training run from the command line.
type run struct {
	*app
	*setup
	dir           string
	phase         string // whose run it is, in a folder of that name; empty: of none
	resume, fresh bool
	until         int64
	started       time.Time
	began         func() error // called once nothing can be refused any more; nil: nothing to do
	changed       []change     // settings that are not those of the run that is resumed
	otherBits     string       // says that a resumed run rounds differently from here on
	program       *engine.Program
	runner        *engine.Executable
	data          *system.Run
	store         *checkpoint.Store
	recorder      *train.Recorder
	view          *progress
	arenaUsed     int64
	unrecorded    bool // metrics could not be written, which was told
	report        *plan.Report
	uploads       *remote.Uploader // nil: none
	loaded        time.Duration
	products      *counter
	summary       *Summary
}

func (r *run) train() (err error) {
	r.signals.does(preparing)
	if r.resume {
		if err := r.sameRun(); err != nil {
			return err
		}
	}
	target, err := r.hostTarget()
	if err != nil {
		return err
	}
	if r.report, r.program, err = r.fit(target, r.precision); err != nil {
		return err
	}
	r.announce()
	undo, err := makeDir(r.dir)
	if err != nil {
		return err
	}
	defer func() {
		if r.view == nil { // it never began
			undo()
		}
	}()
	if r.store, err = checkpoint.Open(r.dir, checkpoint.Options{
		KeepLast: r.config.Checkpoint.KeepLast, KeepBest: r.keepBest(), Notify: r.saved, SyncLog: r.syncMetrics,
	}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.store.Close()) }()
	from, err := r.startingPoint()
	if err != nil {
		return err
	}
	if r.data, err = r.system.Open(r.ctx, r.config, r.model, system.Env{Dir: r.store.Run(), Cache: r.cache(r.dir), Position: position(from), Log: r.log}); err != nil {
		return cmp.Or(r.store.Check(), err) // where the folder is gone, that is why
	}
	defer func() { err = errors.Join(err, closeData(r.data)) }()
	// Preparing data leaves garbage; what counts from here on is the run's own.
	debug.FreeOSMemory()
	resetPeakRSS()
	facts, err := r.facts(r.program, target, r.report.Run.Settings, r.data.DataBytes)
	if err != nil {
		return err
	}
	facts.Heap = heapInUse()
	r.report = plan.New(r.program, target, facts)
	if r.runner, err = r.ready(r.program, r.data); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.unload()) }()
	r.loaded = time.Since(r.started)
	defer func() { err = errors.Join(err, r.finishUploads()) }()
	return r.loop(from)
}

// makeDir makes a run directory where there is nothing of its name. undo takes it away again where it is new and
// holds nothing but a lock.
func makeDir(dir string) (undo func(), err error) {
	if _, err := os.Lstat(dir); err == nil {
		return func() {}, nil
	}
	return func() {
		for _, name := range []string{checkpoint.Folder, rundir.LockFile, ""} {
			_ = os.Remove(filepath.Join(dir, name)) // a folder with something in it stays
		}
	}, os.MkdirAll(dir, 0o777)
}

// keepBest is how many of the best checkpoints the store keeps.
func (r *run) keepBest() int {
	if r.config.Checkpoint.KeepBest {
		return 1
	}
	return -1 // none
}

// home is the run directory as it is called by now.
func (r *run) home() string {
	if r.store == nil {
		return r.dir
	}
	return r.store.Run().Path()
}

// asOut is what is given as --out to go on with the run that is in dir: of a
// phase the folder of the whole.
func (r *run) asOut(dir string) string {
	if r.phase != "" && filepath.Base(dir) == r.phase {
		return filepath.Dir(dir)
	}
	return dir
}

// closeData ends the feed, whose goroutines read ahead, before what it reads is unmapped.
func closeData(d *system.Run) error {
	d.Feed.Close()
	return d.Close()
}

// startingPoint is the checkpoint to go on from, nil for a new run.
func (r *run) startingPoint() (*checkpoint.Checkpoint, error) {
	c, rejected, err := r.store.Latest()
	for _, x := range rejected {
		r.printf("checkpoint %s is not used: %v\n", filepath.Base(x.Path), x.Err)
	}
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		switch {
		case len(rejected) == 0:
		case r.fresh:
			return nil, r.store.StartOver()
		case r.resume:
			return nil, fmt.Errorf("%w; start over with --fresh", err)
		default:
			return nil, fmt.Errorf("%s holds a run with %d checkpoints, none of which can be used; the newest: %s: %w\nstart over with --fresh, which removes them, or choose another --out", r.dir, len(rejected), filepath.Base(rejected[0].Path), rejected[0].Err)
		}
		if r.resume {
			r.printf("nothing to resume in %s: starting a new run\n", r.dir)
		}
		return nil, nil
	case err != nil:
		return nil, err
	case r.fresh:
		return nil, errors.Join(r.store.StartOver(), c.Close()) // they go once the new run has saved
	case !r.resume:
		at := c.State.Update
		return nil, errors.Join(fmt.Errorf("%s holds a run with %d updates done: go on with --resume, start over with --fresh, or choose another --out", r.dir, at), c.Close())
	}
	if err := r.resumable(c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	r.store.ContinuedFrom(c.State.Update)
	return c, nil
}

// plan identifies the compiled program in checkpoints.
func (r *run) plan() string {
	h := sha256.New()
	for _, f := range r.program.Funcs {
		_, _ = fmt.Fprint(h, f.F) // a hash never fails to write
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

func (r *run) loop(from *checkpoint.Checkpoint) error {
	cfg := &r.config.Training
	var yaml bytes.Buffer
	if err := r.config.WriteYAML(&yaml); err != nil {
		return err
	}
	files := map[string][]byte{checkpoint.ConfigFile: yaml.Bytes()}
	for name, content := range r.data.Files {
		files[name] = content
	}
	all, _ := r.program.Parameters()
	job := &train.Job{
		Runner: r.runner, Feed: r.data.Feed, Updates: int64(cfg.MaxSteps), Until: r.until, Seed: cfg.Seed,
		Schedule: r.schedule(), Goal: r.data.Goal, Evaluator: r.data.Evaluator,
		Early:    train.EarlyStopping{Patience: cfg.EarlyStoppingPatience, MinDelta: cfg.EarlyStoppingMinDelta},
		LogEvery: int64(cfg.LogSteps), EvalEvery: int64(cfg.EvalSteps), SaveEvery: int64(cfg.SaveSteps),
		Store: r.store, Files: files, Plan: r.plan(), Arithmetic: r.arithmetic(), StopAtScale: minScale,
		Metadata: checkpoint.Metadata{
			Snug: version(), System: r.config.System, Preset: r.config.Preset, Parameters: all, MaxUpdates: int64(cfg.MaxSteps),
			Model:   r.model.Summary,
			Machine: map[string]any{"device": r.computer(), "precision": r.precision, "threads": r.threads, "kernels": r.on.Arithmetic()},
			Training: map[string]any{
				"micro_batch": r.model.Shape.MicroBatch, "accumulation": r.model.Shape.Accumulation,
				"schedule": cfg.LRScheduler, "learning_rate": cfg.LearningRate,
			},
		},
	}
	job.Learning, job.Advise = r.learning(), r.advise
	if w := job.Schedule.Warning(); w != "" {
		r.warning("%s", w)
	}
	start := int64(0)
	if from != nil {
		var err error
		if start, err = job.Resume(from); err != nil {
			return errors.Join(r.misfit(err), from.Close())
		}
		if err := from.Close(); err != nil {
			return err
		}
	}
	if err := r.begin(yaml.Bytes()); err != nil {
		return err
	}
	weights, optimizer := train.Tensors(r.runner)
	r.store.Reserve(checkpoint.StagingBytes(weights, optimizer))
	var err error
	if r.recorder, err = train.NewRecorder(r.store.Run(), start); err != nil {
		return err
	}
	r.products = newCounter(r.program, r.report)
	r.view = newProgress(r)
	if r.otherBits != "" {
		if err := r.recorder.Record(train.Warned{Update: start, Text: r.otherBits}); err != nil {
			return err
		}
	}
	job.Watch = r.watch
	r.signals.does(training(r.config.Checkpoint.Grace))
	res, err := job.Run(r.ctx, start)
	// Where the run failed a save may be in flight, whose end is told and recorded.
	_ = r.store.Flush(context.Background())
	r.view.close()
	if e := r.recorder.Close(); e != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w", train.MetricsFile, e))
	}
	if res == nil {
		return err
	}
	r.signals.does(afterward)
	return errors.Join(err, r.end(res, err))
}

// begin writes the first thing to a run directory, its configuration: from here
// on nothing is refused.
func (r *run) begin(yaml []byte) error {
	if err := r.startUploads(); err != nil {
		return err
	}
	if r.began != nil {
		if err := r.began(); err != nil {
			return err
		}
	}
	return r.store.Run().Replace(checkpoint.ConfigFile, yaml)
}

// minScale is the loss scale below which a run has diverged: gradients that
// overflow at 1/4 have no place in fp16.
const minScale = 0.25

func (r *run) schedule() *train.Schedule {
	t := &r.config.Training
	return &train.Schedule{
		Kind: train.ScheduleKind(t.LRScheduler), Peak: t.LearningRate, Warmup: int64(t.WarmupSteps), Total: int64(t.MaxSteps),
		Floor: t.MinLRRatio, Factor: t.Plateau.Factor, Patience: t.Plateau.Patience, Threshold: 1e-4,
		Width: r.model.Width,
	}
}

// watch passes what happens on to the log and to the screen.
func (r *run) watch(e train.Event) {
	if err := r.recorder.Record(e); err != nil && !r.unrecorded {
		r.unrecorded = true
		r.view.warn(fmt.Sprintf("%s: %v; its lines wait until there is room", train.MetricsFile, err))
	}
	if s, ok := e.(train.Step); ok && s.Update == r.auditAt() {
		r.audit()
	}
	r.view.event(e)
}

// auditAt is the update by which every parameter must have had a gradient.
func (r *run) auditAt() int64 {
	return max(1, min(r.model.AllReached, int64(r.config.Training.MaxSteps)))
}

// audit tells, after the first updates, which parameters no gradient reached.
func (r *run) audit() {
	for _, name := range r.program.Untrained {
		r.view.warn(fmt.Sprintf("parameter %s does not influence the loss and is not trained", name))
	}
	names, err := r.zeroGradients()
	if err != nil {
		r.view.warn(fmt.Sprintf("the gradients cannot be read: %v", err))
	}
	for _, name := range names {
		r.view.warn(fmt.Sprintf("parameter %s got gradients of exactly zero up to update %d", name, r.auditAt()))
	}
}

// zeroGradients are the trained weights whose gradients were all zero: their
// second moment is still zero.
func (r *run) zeroGradients() (names []string, err error) {
	for _, s := range r.program.States {
		if s.Role != graph.Weight {
			continue
		}
		moment := engine.Moment2 + s.Name
		if r.program.State(moment) == nil {
			continue
		}
		zero := true
		err := r.runner.ScanState(moment, func(part engine.Tensor) (goOn bool) {
			zero = !slices.ContainsFunc(part.F32(), func(x float32) bool { return x != 0 })
			return zero
		})
		if err != nil {
			return nil, err
		}
		if zero {
			names = append(names, s.Name)
		}
	}
	return names, nil
}

// syncMetrics makes the metrics of the updates so far durable.
func (r *run) syncMetrics() error {
	if err := r.recorder.Sync(); err != nil {
		return fmt.Errorf("%s: %w", train.MetricsFile, err)
	}
	return nil
}

// saved passes news of the checkpoint store on, from its goroutine.
func (r *run) saved(e checkpoint.Event) {
	if r.view == nil {
		if e.Kind == checkpoint.Moved { // while data was prepared
			r.warning("%s", r.movedTo(e.Path))
		}
		return
	}
	r.view.saving(e)
	if err := r.recorder.Record(train.Saving{Update: e.Update, Kind: string(e.Kind), Path: base(e.Path), Bytes: e.Bytes, Took: e.Took, Err: e.Err}); err != nil {
		r.view.warn(err.Error())
	}
	if e.Kind == checkpoint.Saved && r.uploads != nil {
		if err := r.uploads.Enqueue(base(e.Path)); err != nil {
			r.view.warn(err.Error())
		}
	}
}

// movedTo says that the run folder was moved.
func (r *run) movedTo(path string) string {
	return fmt.Sprintf("the run folder was moved: the run goes on in %s; resume it with --out %s", path, r.asOut(path))
}

// end writes the report, the sample and the summary of a run that ended with the error why,
// nil if it is done.
func (r *run) end(res *train.Result, why error) error {
	stopped := why != nil
	if !stopped && r.data.Report != nil {
		if err := r.reportBest(res); err != nil {
			return err
		}
	}
	r.arenaUsed = r.runner.ArenaUsed()
	if !stopped && r.system.Language != nil && r.config.Training.Sample.Tokens > 0 {
		// The generator takes less than the program that trained, in whose place it comes.
		if err := errors.Join(r.unload(), r.sample()); err != nil {
			return err
		}
	}
	return r.summarise(res, why)
}

// unload frees the program that trained, once.
func (r *run) unload() error {
	if r.runner == nil {
		return nil
	}
	err := r.runner.Close()
	r.runner = nil
	return err
}

// reportBest reports on the best weights of the run, or on the last where no
// others were kept.
func (r *run) reportBest(res *train.Result) (err error) {
	update := res.Update
	best, err := checkpoint.Choose(r.home(), checkpoint.Best)
	if err != nil {
		r.warning("the report is on the last weights: %v", err)
	} else if best.Update != update {
		c, err := checkpoint.Load(best.Path)
		if err != nil {
			return err
		}
		update = best.Update
		if err := errors.Join(train.LoadStates(r.runner, c, graph.Weight, graph.Buffer), c.Close()); err != nil {
			return err
		}
	}
	return r.data.Report(context.WithoutCancel(r.ctx), r.runner, update, r.store.Run())
}

// sample lets the model of the best checkpoint write.
func (r *run) sample() error {
	c, err := checkpoint.Choose(r.home(), checkpoint.Best)
	if err != nil {
		return err
	}
	l, err := r.system.Language(r.config, c.Path)
	if err != nil {
		return err
	}
	g, err := inference.NewGenerator(l, r.on)
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }() // memory only
	s := &r.config.Training.Sample
	r.printf("\nsample of %v:\n", c)
	_, err = g.Generate(context.WithoutCancel(r.ctx), s.Prompt, s.Tokens, inference.Sampling{
		Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, Seed: r.config.Training.Seed,
	}, r.out)
	r.printf("\n")
	return err
}
