package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/mlflow"
	"github.com/snug-ml/snug/train/remote"
	"github.com/snug-ml/snug/train/rundir"
)

// run is one training run.
type run struct {
	*training
	*Setup
	dir       string
	phase     *phaseOf // the phase that this run implements; nil if none
	started   time.Time
	lineage   *checkpoint.Lineage // set for a phase, even if it is resumed alone
	anew      bool                // existing checkpoints belong to a run that this one starts over
	changed   []change            // settings that differ from the run being resumed
	onCards   bool                // gradients are exchanged from card to card
	otherBits string              // why a resumed run rounds differently from here on
	target    plan.Target
	report    *plan.Report
	program   *engine.Program
	runner    *engine.Executable
	data      *system.Run
	store     *checkpoint.Store
	recorder  *train.Recorder
	speed     *speedometer
	about     *monitor.Info
	next      *device.NextBatch
	sampler   *device.Sampler
	telemetry *telemetry        // nil before the run begins
	early     []monitor.LogLine // messages from before telemetry exists
	// lastUpdate is the number of updates done.
	lastUpdate int64
	// unrecorded means that metrics could not be written, and that this was reported.
	unrecorded bool
	uploads    *remote.Uploader // nil if none
	exporter   *exporter        // writes event files; nil if none
	server     *mlflow.Server   // nil if none
	tracking   *mlflow.Exporter // to server; nil if none, or not yet
	loaded     time.Duration
	summary    *Summary
}

func (r *run) train() (err error) {
	r.sampler = device.NewSampler()
	defer func() { _ = r.sampler.Close() }() // files of /proc, read only
	if r.Resume {
		if err := r.sameRun(); err != nil {
			return err
		}
		if list, err := checkpoint.List(r.dir); err == nil && len(list) > 0 && list[0].Manifest != nil && !rundir.StartedOver(r.dir, list[0].Manifest.Run) {
			_, r.slices = slicesOf(list[0].Manifest.Arithmetic)
		}
	}
	target, err := r.Target()
	if err != nil {
		return err
	}
	r.target = target
	if r.report, r.program, err = r.Fit(target, r.Precision); err != nil {
		return err
	}
	if err := r.shareable(); err != nil {
		return err
	}
	r.sayGradients()
	r.next = r.nextBatch(target)
	r.emit(Planned{r.Setup, r.report})
	undo, err := makeDir(r.dir)
	if err != nil {
		return err
	}
	defer func() {
		if r.recorder == nil { // the run never began
			undo()
		}
	}()
	if r.store, err = checkpoint.Open(r.dir, checkpoint.Options{
		KeepLast: r.Config.Checkpoint.KeepLast, KeepBest: r.keepBest(), OnEvent: r.saved, SyncLog: r.syncMetrics,
	}); err != nil {
		return err
	}
	defer func() {
		if backend.Lost(err) {
			err = r.lost(err)
		}
		r.ended(err)
		err = errors.Join(err, r.store.Close())
	}()
	if err := r.phase.holds(r.store.Run()); err != nil {
		return err
	}
	from, err := r.startingPoint()
	if err != nil {
		return err
	}
	if r.lineage, err = r.lineageOf(from); err != nil {
		return err
	}
	r.ofPhase = r.lineage != nil
	env := system.Env{Dir: r.store.Run(), Cache: r.Cache(r.dir), Position: position(from), From: r.origins(), Log: r.infof}
	if r.data, err = r.Data(r.ctx, env); err != nil {
		return cmp.Or(r.store.Check(), err) // a missing folder is the cause of other errors
	}
	defer func() { err = errors.Join(err, CloseData(r.data)) }()
	// Preparing data leaves garbage; from here on only the run's own memory counts. The plan includes what the
	// data has added to the heap, without that garbage.
	debug.FreeOSMemory()
	resetPeakRSS()
	defer runHeap()()
	if err := r.planWithData(target); err != nil {
		return err
	}
	r.EpochUnits = r.data.Rows * r.Model.UnitsPerRow
	r.whole(&r.report.Time)
	if err := r.computeAs(from); err != nil {
		return err
	}
	if r.runner, err = r.Load(r.program, r.data); err != nil {
		return err
	}
	defer func() {
		if e := r.unload(); !backend.Lost(err) { // nothing can be freed on a lost device
			err = errors.Join(err, e)
		}
	}()
	if _, text := r.runner.Matmuls(); text != "" {
		r.infof("%s", text)
	}
	debug.FreeOSMemory() // returns what compiling and loading left
	r.loaded = time.Since(r.started)
	defer func() { err = errors.Join(err, r.finishUploads()) }()
	return r.loop(from)
}

// planWithData plans again with what the data takes in memory. If that does not fit, settings that were left to
// the planner are decided again, unless other processes compute by the same ones.
func (r *run) planWithData(t plan.Target) (err error) {
	was := r.report.Run.Settings
	r.heap = heapAdded(r.base)
	if r.report, err = r.withData(r.program, t, was, r.data, r.heap); err != nil || r.report.Fits {
		return err
	}
	switch {
	case t.Card == nil && t.Memory > 0 && t.Memory-r.heap < planningRoom:
		return fmt.Errorf("%w; `snug plan` shows what changes of the settings save", &plan.DoesNotFit{Report: r.report})
	case r.Group != nil:
		_, err := r.Planner(t).Check(was)
		return err
	}
	if r.report, r.program, err = r.Fit(t, r.Precision); err != nil {
		return err
	}
	now := r.report.Run.Settings
	r.infof("%v does not fit with the data: %v instead", was, now)
	r.report, err = r.withData(r.program, t, now, r.data, r.heap)
	return err
}

// planningRoom is the least memory besides the data that the search for changes that would fit is given: for a
// quickstart, the process grows by up to 100 MiB meanwhile.
const planningRoom = 256 << 20

// heapGrowth is the percentage by which the heap of a run may grow before it is collected. A run allocates
// little once it is loaded.
const heapGrowth = 50

// runHeap makes the heap grow as in a run, unless GOGC is set. The returned function ends that.
func runHeap() (undo func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	was := debug.SetGCPercent(heapGrowth)
	return func() { debug.SetGCPercent(was) }
}

// makeDir creates a run directory if nothing of that name exists. undo removes the folders that did not exist, as
// long as they are empty: a folder with only data must not look like a run.
func makeDir(dir string) (undo func(), err error) {
	var made []string
	for _, name := range []string{checkpoint.Folder, rundir.LockFile, dataFolder, ""} {
		if path := filepath.Join(dir, name); !exists(path) {
			made = append(made, path)
		}
	}
	if !exists(dir) {
		err = os.MkdirAll(dir, 0o777)
	}
	return func() {
		for _, path := range made {
			_ = os.Remove(path) // a folder with something in it stays
		}
	}, err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// keepBest returns how many of the best checkpoints the store keeps.
func (r *run) keepBest() int {
	if r.Config.Checkpoint.KeepBest {
		return 1
	}
	return -1 // none
}

// home returns the current path of the run directory.
func (r *run) home() string {
	if r.store == nil {
		return r.dir
	}
	return r.store.Run().Path()
}

// asOut returns the value of --out that continues the run in dir; for a phase, the folder of the whole run.
func (r *run) asOut(dir string) string {
	if r.phase != nil && filepath.Base(dir) == r.phase.name {
		return filepath.Dir(dir)
	}
	return dir
}

// startingPoint returns the checkpoint to continue from; nil for a new run.
func (r *run) startingPoint() (*checkpoint.Checkpoint, error) {
	c, rejected, err := r.store.Latest()
	for _, x := range rejected {
		r.infof("checkpoint %s is not used: %v", filepath.Base(x.Path), x.Err)
	}
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		switch {
		case len(rejected) == 0:
		case r.Fresh:
			r.anew = true
			return nil, nil
		case r.Resume:
			return nil, fmt.Errorf("%w; start over with --fresh", err)
		default:
			return nil, fmt.Errorf("%s has a run with %s, none of which can be used; the newest: %s: %w\nstart over with --fresh, which removes them, or choose another --out", r.dir, size.Of(len(rejected), "checkpoint"), filepath.Base(rejected[0].Path), rejected[0].Err)
		}
		if r.Resume {
			r.infof("nothing to resume in %s: starting a new run", r.dir)
		}
		return nil, nil
	case err != nil:
		return nil, err
	case r.Fresh && r.phase == nil && c.Manifest.Lineage != nil:
		return nil, errors.Join(usage("%s is a phase of the run in %s: start it over from there, with --phase", r.dir, filepath.Dir(filepath.Clean(r.dir))), c.Close())
	case r.Fresh:
		r.anew = true
		return nil, c.Close()
	case !r.Resume:
		return nil, errors.Join(r.taken(c.State.Update), c.Close())
	case r.store.Run().StartedOver(c.Manifest.Run):
		r.infof("nothing to resume: %s is of the run that this one, which has saved nothing yet, starts over", filepath.Base(c.Path))
		r.anew = true
		return nil, c.Close()
	}
	if err := r.resumable(c); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	r.store.ContinuedFrom(c.State.Update)
	return c, nil
}

// planHash identifies the compiled program in checkpoints.
func (r *run) planHash() string { return programHash(r.program) }

// programHash is the same on all ranks, even if each has its own update function.
func programHash(p *engine.Program) string {
	h := sha256.New()
	for _, f := range p.Funcs {
		if f.Name != engine.FuncUpdate || p.Shards == nil {
			_, _ = fmt.Fprint(h, f.F) // a hash never fails to write
		}
	}
	if p.Shards != nil {
		for r, parts := range p.Shards.Weights {
			for _, w := range parts {
				_, _ = fmt.Fprintln(h, "weight", r, w.State.Name, w.From, w.Elems)
			}
			for _, m := range p.Shards.Moments[r] {
				_, _ = fmt.Fprintln(h, "moment", r, m.Name, m.From, m.Type)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// metadata describes the run for its checkpoints.
func (r *run) metadata() checkpoint.Metadata {
	cfg := &r.Config.Training
	all, _ := r.program.Parameters()
	return checkpoint.Metadata{
		Snug: Version(), System: r.Config.System, Preset: r.Config.Preset, Parameters: all, MaxUpdates: int64(cfg.MaxSteps),
		Model:   r.Model.Summary,
		Machine: map[string]any{"device": r.Computer(), "precision": r.Precision, "threads": r.Threads, "kernels": r.runner.Arithmetic()},
		Training: map[string]any{
			"micro_batch": r.Model.Shape.MicroBatch, "accumulation": r.Model.Shape.Accumulation,
			"schedule": cfg.LRScheduler, "learning_rate": r.LearningRate(),
		},
	}
}

// job returns the configured training, without the parts that only one of several processes does.
func (s *Setup) job(d *system.Run, x *engine.Executable) *train.Job {
	cfg := &s.Config.Training
	return &train.Job{
		Runner: x, Loader: d.Loader, Exchange: s.exchange(), Sums: s.sums(), Updates: int64(cfg.MaxSteps), Seed: cfg.Seed,
		Schedule: s.Schedule(), LogEvery: int64(cfg.LogSteps), StopAtScale: minScale,
		Eval: train.EvalOptions{
			Evaluator: d.Evaluator, Monitor: d.Monitor, Every: int64(cfg.EvalSteps),
			Early: train.EarlyStopping{Patience: cfg.EarlyStoppingPatience, MinDelta: cfg.EarlyStoppingMinDelta},
		},
	}
}

func (r *run) loop(from *checkpoint.Checkpoint) (err error) {
	yaml := r.Config.YAML()
	files := map[string][]byte{checkpoint.ConfigFile: yaml}
	for name, content := range r.data.Files {
		files[name] = content
	}
	if record, _ := r.runner.Matmuls(); record != nil {
		files[backend.MatmulsFile] = record
	}
	job := r.job(r.data, r.runner)
	job.Until, job.Learning, job.Advise, job.OnEvent = r.Until, r.learning(), r.advise, r.watch
	job.Save = train.SaveOptions{
		Store: r.store, Every: int64(r.Config.Training.SaveSteps),
		Run:         checkpoint.Snapshot{Files: files, Metadata: r.metadata(), PlanHash: r.planHash()},
		Performance: r.performance,
	}
	// Loading the configuration already warned about the schedule of the whole run, but a phase has its own.
	if w := job.Schedule.Warning(); w != "" && job.Schedule.Total != int64(r.Config.Training.MaxSteps) {
		r.warnf("%s", w)
	}
	start := int64(0)
	if from != nil {
		if r.data.Belongs != nil {
			if err := r.data.Belongs(from.Path); err != nil {
				return errors.Join(err, from.Close())
			}
		}
		if start, err = job.Resume(from); err != nil {
			return errors.Join(r.misfit(err), from.Close())
		}
	}
	if err = r.share(job, from, yaml); err == nil {
		job.Save.Run.Arithmetic = r.computed() // depends on what gradients are exchanged over
		r.sameBits(from)
	}
	if from != nil {
		err = errors.Join(err, from.Close())
	}
	if err != nil {
		return err
	}
	if err := r.begin(yaml); err != nil {
		return err
	}
	if r.phase != nil {
		r.lineage.Whole = r.phase.whole.id // the whole run has begun by now
	}
	job.Save.Run.Lineage = r.lineage
	if err := r.store.Reserve(train.StagingBytes(r.program)); err != nil {
		return err
	}
	if r.recorder, err = train.NewRecorder(r.store.Run(), start, job.Evaluated(start)); err != nil {
		return err
	}
	r.recorder.Renewed = func() {
		r.warnf("%s was removed or replaced while the run writes to it: it goes on there", r.store.Run().Join(train.MetricsFile))
	}
	r.speed = &speedometer{products: newCounter(r.program, r.report)}
	r.observe(start)
	r.exports(start)
	begins := Begins{Setup: r.Setup, Report: r.report, Dir: r.home(), Look: r.telemetry.latest}
	if err := r.expect(&begins, start); err != nil {
		return err
	}
	r.emit(begins)
	if r.otherBits != "" {
		if err := r.recorder.Record(train.Warned{Update: start, Text: r.otherBits}); err != nil {
			return err
		}
	}
	res, err := job.Run(r.ctx, start)
	r.keepConfig()
	// After a failure a save may still be in flight; wait until its end is reported and recorded.
	_ = r.store.Flush(context.Background())
	r.telemetry.does(monitor.Finishing)
	peak := peakRSS()
	if r.exporter != nil {
		r.exporter.end()
	}
	r.emit(Trained{res})
	if e := r.recorder.Close(); e != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w", train.MetricsFile, e))
	}
	if res == nil {
		return err
	}
	return errors.Join(err, r.end(res, err, peak))
}

// observe starts to write what monitors read.
func (r *run) observe(start int64) {
	r.lastUpdate = start
	r.about = r.aboutRun(start)
	if err := r.store.Run().ReplaceJSON(monitor.InfoFile, r.about); err != nil {
		r.warnf("%s: %v; the run goes on", monitor.InfoFile, err)
	}
	card, err := backend.Monitor(r.Backend)
	if err != nil {
		r.infof("what the card draws and how hot it is will not be shown: %v", err)
	}
	t := newTelemetry(card, r.sampler, r.store.Run(), start, func() bool { return r.store.Status().Writing })
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.early {
		t.say(l)
	}
	r.telemetry, r.early = t, nil
}

// exports starts to write what other programs read.
func (r *run) exports(start int64) {
	if r.server != nil {
		r.tracking = r.track(r.server, r.store.Run(), r.about, r.asOut(r.home()))
	}
	if !r.Config.Metrics.TensorBoard {
		return
	}
	x, err := r.newTensorBoard(start)
	if err != nil {
		r.warnf("metrics.tensorboard: %v; the run goes on without", err)
		return
	}
	r.exporter = x
}

// begin writes the configuration, the first file of a run directory. From here on nothing is rejected.
func (r *run) begin(yaml []byte) error {
	if err := r.startUploads(); err != nil {
		return err
	}
	if r.phase != nil {
		if err := r.phase.began(); err != nil {
			return err
		}
	}
	if r.anew { // the old checkpoints go once this run has saved
		if err := r.store.StartOver(); err != nil {
			return err
		}
	}
	return r.store.Run().Replace(checkpoint.ConfigFile, yaml)
}

// minScale is the loss scale below which a run counts as diverged: gradients that overflow at 1/4 do not fit
// fp16.
const minScale = 0.25
