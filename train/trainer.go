// Package train is the clock of a run. One unit counts everything: the
// optimizer update. Schedules, logging, evaluation, saving and early stopping
// are in updates; a loss is the weighted mean over a whole update, whatever
// its micro-batches.
//
// It promises that a run that was stopped anywhere and resumed continues as if
// nothing had happened, bit for bit: weights, moments, loss scale, data position
// and random numbers are all part of the state.
package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/snug-ml/snug/dist"
	"github.com/snug-ml/snug/dist/nccl"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/train/checkpoint"
)

// Job is a run: what to compute, on what, for how long.
type Job struct {
	Runner *engine.Executable
	Loader DataLoader
	// Schedule is the schedule of learning rates, Updates the total number of updates.
	Schedule *Schedule
	Updates  int64
	// Group is set if several processes train together; nil: this one trains alone. Only
	// rank 0's job has a store and an observer.
	Group dist.Group
	// Exchange is the format in which the group exchanges gradients, F32, BF16 or Int8; 0: F32.
	Exchange graph.DType
	// Sums is how the group adds up gradients.
	Sums Sums
	// NCCL exchanges gradients from card to card, between ranks whose group is a [dist.Watched]; nil: they
	// go through main memory, over the group.
	NCCL *nccl.Library
	// Until, when positive, stops the run after that update like an interruption: the
	// state is saved, and the schedule is still that of the whole run.
	Until int64
	Seed  uint64

	Eval EvalOptions
	Save SaveOptions
	// LogEvery is the number of updates between log lines; 0: only the last.
	LogEvery int64
	// StopAtScale ends the run when the loss scale falls below it.
	StopAtScale float64

	// Learning watches whether anything is learned. Advise returns what to change for a
	// kind of warning; nil: nothing.
	Learning Learning
	Advise   func(WarningKind) []string
	// OnEvent receives everything that happens, in order, from one goroutine.
	OnEvent func(Event)

	progress
}

// EvalOptions say how a run is evaluated.
type EvalOptions struct {
	// Evaluator measures on held-out data; nil: never. Monitor is the metric in its
	// result that decides which state is best.
	Evaluator Evaluator
	Monitor   Metric
	// Every is the number of updates between evaluations; 0: only after the last.
	Every int64
	Early EarlyStopping
}

// SaveOptions say which checkpoints of a run are kept.
type SaveOptions struct {
	// Store keeps checkpoints; nil: there are none.
	Store *checkpoint.Store
	// Every is the number of updates between checkpoints; 0: only after the last.
	Every int64
	// Run is what every snapshot records about the run: Files, Metadata, PlanHash and
	// Arithmetic. The job fills in the rest.
	Run checkpoint.Snapshot
	// Performance returns what was measured so far; nil: nothing is measured.
	Performance func() *checkpoint.Performance
}

// progress says how far a job has come.
type progress struct {
	ranks    *ranks // nil: this process trains alone
	tokens   int64
	position any // of the loader after the last update
	previous any // and before it
	best     *checkpoint.Metric
	bestAt   int64
	history  checkpoint.History
	began    time.Time
	seconds  float64 // of earlier sessions
	latest   map[string]float64
	saved    int64         // update of the last snapshot passed to the store
	saving   time.Duration // spent in save since the last update
	lossZ    Outliers
	normZ    Outliers
	skipped  int64
	outputs  outputs
	firstAt  time.Duration
	lastLoss float64
	ask      bool // a part of the curve is complete
	// slot is the input slot that the host holds between updates; last is the micro-batch
	// in it, once an update has run.
	slot int
	last filled
	ran  bool
	// before are the states that micro-batches change other than gradients, as the update found them.
	before    []engine.Tensor
	evaluated int64 // update of the last evaluation, -1 before the first
	// Of ranks that train on their own (outer.go): the update after which they last had the same
	// weights, and how many updates this one has skipped since.
	synchronized, skippedAlone int64
	from                       string // path of the checkpoint that the job resumed from
	resumed                    int64  // its update
}

// outputs say where the program reports its results.
type outputs struct {
	fn     string // function of a micro-batch
	update string // function that ends an update
	scaled bool   // the loss is scaled
}

// Result sums up a run.
type Result struct {
	Update       int64 // updates done
	Tokens       int64
	Loss         float64 // of the last update
	Metrics      map[string]float64
	Best         float64
	BestAt       int64
	HasBest      bool
	Skipped      int64
	FirstUpdate  time.Duration // from the start of Run to the end of the first update
	Seconds      float64       // all sessions
	StoppedEarly bool
	// Checkpoint is the path of the newest one, empty if there is none.
	Checkpoint string
	// Warning is what is wrong with what was learned, nil for nothing.
	Warning *Warning
}

// ErrStopped reports that the context ended the run; the state was saved.
var ErrStopped = errors.New("stopped before the last update")

// ErrNothingSaved is an [ErrStopped] before the first update was done, when there is no state worth saving.
var ErrNothingSaved error = nothingSaved{}

type nothingSaved struct{}

func (nothingSaved) Error() string {
	return "stopped before the first update was done: nothing is saved"
}

func (nothingSaved) Unwrap() error { return ErrStopped }

// Run trains from update start (0, or what Resume returned) to the end. When ctx ends,
// the current micro-batch is finished, the state saved, and ErrStopped returned. There is
// both a result and an error if the updates were done and only the last save failed.
func (j *Job) Run(ctx context.Context, start int64) (res *Result, err error) {
	j.began = time.Now()
	if j.ranks, err = j.join(ctx); err != nil {
		return nil, err
	}
	if j.ranks != nil {
		defer func() { err = errors.Join(err, j.ranks.exchange.close(err)) }()
	}
	if err := j.beginOuter(start); err != nil {
		return nil, err
	}
	if start == 0 {
		j.evaluated = -1
	}
	if j.history == nil {
		j.history = checkpoint.History{}
	}
	j.Learning.Monitor = j.Eval.Monitor
	j.bindOutputs()
	j.before = nil
	for _, name := range Buffered(j.Runner.Program()) {
		t, err := j.Runner.State(name)
		if err != nil {
			return nil, err
		}
		j.before = append(j.before, t)
	}
	if j.position == nil {
		j.position = j.Loader.Position()
	}
	f := startFiller(j.Runner, j.Loader, j.Updates-start, j.turns())
	defer f.close()
	j.slot = 0
	for u := start; ; u++ {
		measured, err := j.measure(ctx, u)
		if err != nil {
			return nil, err
		}
		d := j.decide(ctx, u, measured)
		if err := j.act(u, d); err != nil {
			return nil, err
		}
		if err := j.agree(u, &d); err != nil {
			return nil, err
		}
		switch d.end {
		case done, early:
			return j.finish(ctx, u, d.end == early)
		case interrupted:
			return j.stopped(u)
		}
		step, err := j.update(ctx, f, u)
		if errors.Is(err, io.EOF) {
			if !j.together(u) {
				if err := j.synchronize(u, nil, nil); err != nil {
					return nil, fmt.Errorf("after update %d: %w", u, err)
				}
			}
			return j.finish(ctx, u, false)
		}
		if errors.Is(err, errAbandoned) {
			f.close() // it may be filling the slot that the state is tested on
			return j.stopped(u)
		}
		if err != nil {
			return nil, err
		}
		if u == start {
			j.firstAt = time.Since(j.began)
		}
		j.emit(*step)
	}
}

func (j *Job) bindOutputs() {
	o := &j.outputs
	o.fn, o.update = engine.FuncStep, engine.FuncStep
	if j.Runner.Program().Func(engine.FuncUpdate) != nil {
		o.fn, o.update = engine.FuncMicro, engine.FuncUpdate
	}
	o.scaled = j.Runner.Program().State(engine.StateScale) != nil
}

// update runs the micro-batches of one update and the optimizer. The device may lag one
// input slot behind the host; they synchronize when the update is read.
func (j *Job) update(ctx context.Context, f *filler, u int64) (*Step, error) {
	s := &Step{Update: u + 1, Total: j.Updates, LR: j.Schedule.LR(u), Save: j.saving}
	j.saving = 0
	began, saves := time.Now(), j.held()
	failed := func(err error) (*Step, error) { return nil, fmt.Errorf("update %d: %w", u+1, err) }
	for _, t := range j.before {
		if err := j.Runner.ReadState(t.Name, t.Data); err != nil {
			return failed(err)
		}
	}
	f.free <- j.slot
	held := -1 // the slot of this process's last micro-batch
	for m := 0; m >= 0; {
		if stop, err := j.stops(ctx, u, m); err != nil {
			return failed(err)
		} else if stop {
			return nil, j.abandon()
		}
		waited := time.Now()
		b, ok := <-f.ready
		s.Wait += time.Since(waited)
		if !ok {
			return nil, io.EOF
		}
		if b.err != nil {
			return nil, b.err
		}
		if b.slot >= 0 {
			if held >= 0 {
				f.free <- held
			}
			held, j.last = b.slot, b
			if err := j.scalars(Inputs{Runner: j.Runner, Slot: b.slot}, b.update, u, m, s.LR); err != nil {
				return failed(err)
			}
		}
		if err := j.compute(ctx, b.update, m, b.slot); err != nil {
			return failed(err)
		}
		m = j.turns().next(m, b.update.Micro)
	}
	if err := j.merge(j.last.update, s); err != nil {
		return failed(err)
	}
	if j.outputs.update != j.outputs.fn {
		// The update reads the learning rate from the slot.
		if err := j.Runner.Run(j.outputs.update, j.last.slot); err != nil {
			return failed(err)
		}
	}
	if err := j.ranks.updated(s); err != nil {
		return failed(err)
	}
	j.slot, j.ran = j.last.slot, true
	data := j.last.update
	s.NewTokens, s.Variants = data.Tokens, data.Variants
	j.previous, j.position = j.position, j.last.after
	j.tokens += s.NewTokens
	s.Tokens = j.tokens
	if err := j.read(s); err != nil {
		return failed(err)
	}
	bad := j.failed(f, s)
	if bad == nil && j.synchronizes(s.Update) {
		if err := j.synchronize(s.Update, data, s); err != nil {
			return failed(err)
		}
	}
	j.report(s)
	saves = j.held() - saves
	s.Took, s.Save = time.Since(began)-saves, s.Save+saves
	return s, bad
}

// held returns how long updates have waited for saves so far.
func (j *Job) held() time.Duration {
	if j.Save.Store == nil {
		return 0
	}
	return j.Save.Store.Held()
}

// errAbandoned reports that an update was abandoned between micro-batches.
var errAbandoned = errors.New("update abandoned")

// abandon forgets the micro-batches of an unfinished update: the state is that of the
// previous update. A large update may take longer than a preempted machine has left.
func (j *Job) abandon() error {
	for _, s := range j.Runner.Program().States {
		if s.Role == graph.Gradient {
			if err := j.Runner.ClearState(s.Name); err != nil {
				return err
			}
		}
	}
	for _, t := range j.before {
		if err := j.Runner.SetState(t); err != nil {
			return err
		}
	}
	return errAbandoned
}

// Prepare writes micro-batch m of an update into the buffers of in like Run, after at
// updates.
func (j *Job) Prepare(in Inputs, b *Update, at int64, m int) error {
	if err := b.Fill(m, in); err != nil {
		return err
	}
	return j.scalars(in, b, at, m, j.Schedule.LR(at))
}

// scalars sets what the host decides for a micro-batch.
func (j *Job) scalars(in Inputs, b *Update, u int64, m int, lr float64) error {
	inv := 0.0
	if b.Weight > 0 {
		inv = 1 / b.Weight
	}
	if o := j.outer(); o != nil { // the mean of all ranks' losses is that of the update
		inv *= float64(o.World)
	}
	for _, s := range []struct {
		name  string
		value float64
	}{{engine.InputInvWeight, inv}, {engine.InputLR, lr}} {
		x, err := in.F32(s.name)
		if err != nil {
			return err
		}
		x[0] = float32(s.value)
	}
	if in.Has(engine.InputMicro) {
		x, err := in.F32(engine.InputMicro)
		if err != nil {
			return err
		}
		if len(x) < b.Micro {
			return fmt.Errorf("it has %d micro-batches, the program was compiled for %d", b.Micro, len(x))
		}
		clear(x)
		x[m] = 1
	}
	if in.Has(graph.RunCounter) {
		x, err := in.I32(graph.RunCounter)
		if err != nil {
			return err
		}
		n := uint64(u)*uint64(b.Micro) + uint64(m)
		x[0], x[1] = int32(uint32(n)), int32(uint32(n>>32))
	}
	return nil
}

// loss returns the loss of the update: the sum over its micro-batches, in float64.
func (j *Job) loss() (sum float64, err error) {
	var losses []float32
	if j.outputs.update == engine.FuncUpdate {
		var t engine.Tensor
		if t, err = j.Runner.State(engine.StateLosses); err == nil {
			losses = t.F32()[:j.last.update.Micro]
		}
	} else {
		losses, err = j.Runner.OutputF32(j.function(), engine.OutputLoss)
	}
	for _, x := range losses {
		sum += float64(x)
	}
	return sum, err
}

// function returns the one that ended the update.
func (j *Job) function() string {
	if j.outputs.update == engine.FuncUpdate {
		return engine.FuncUpdate
	}
	return engine.Variant(j.outputs.update, j.last.variant())
}

// read reads the program's outputs of the update.
func (j *Job) read(s *Step) (err error) {
	if s.Loss, err = j.loss(); err != nil {
		return err
	}
	fn := j.function()
	read := func(name string) (float64, error) {
		x, err := j.Runner.OutputF32(fn, name)
		if err != nil {
			return 0, err
		}
		return float64(x[0]), nil
	}
	var ok float64
	if s.GradNorm, err = read(engine.OutputGradNorm); err != nil {
		return err
	}
	if ok, err = read(engine.OutputOK); err != nil {
		return err
	}
	s.Skipped = ok == 0
	if j.outputs.scaled {
		if s.Scale, err = read(engine.OutputScale); err != nil {
			return err
		}
	}
	if s.Skipped {
		j.skipped++
		j.skippedAlone++
	}
	return nil
}

// report records the update.
func (j *Job) report(s *Step) {
	j.lastLoss = s.Loss
	j.ask = j.Learning.Loss(s.Update, s.Loss)
	s.LossZ, s.NormZ = j.lossZ.Observe(s.Loss), j.normZ.Observe(s.GradNorm)
	s.Log = j.logged(s.Update)
	j.history.Add("loss", s.Update, s.Loss)
	j.history.Add("learning_rate", s.Update, s.LR)
	j.history.Add("grad_norm", s.Update, s.GradNorm)
}

// act does what was decided after update u, except ending.
func (j *Job) act(u int64, d decision) error {
	if d.fail != nil {
		return d.fail
	}
	if d.best && j.saved == u { // resumed from it: that checkpoint was saved before its evaluation
		j.saved, j.resumed = -1, -1
	}
	if d.best {
		if err := j.save(u); err != nil {
			return err
		}
	}
	if d.ask {
		j.warn(u)
	}
	if d.skip != nil {
		j.emit(checkpoint.Event{Kind: checkpoint.Skipped, Update: u, Err: d.skip})
	}
	if d.save {
		return j.save(u)
	}
	return nil
}

// measure evaluates the state after update u if that is due, unless the context ends.
func (j *Job) measure(ctx context.Context, u int64) (measured bool, err error) {
	if !j.evaluationDue(u) {
		return false, nil
	}
	return j.evaluate(ctx, u)
}

// evaluate measures the state after update u, unless the context ends.
func (j *Job) evaluate(ctx context.Context, u int64) (measured bool, err error) {
	began := time.Now()
	j.emit(Evaluating{u})
	m, measured, err := j.metrics(ctx, u)
	if err != nil {
		return false, fmt.Errorf("evaluation after update %d: %w", u, err)
	}
	if !measured {
		return false, nil // the resumed run will do it
	}
	value, ok := m[j.Eval.Monitor.Name]
	if !ok {
		return false, fmt.Errorf("evaluation after update %d gave no %q, only %v", u, j.Eval.Monitor.Name, slices.Sorted(maps.Keys(m)))
	}
	j.latest, j.evaluated = m, u
	for _, name := range slices.Sorted(maps.Keys(m)) {
		j.history.Add(name, u, m[name])
	}
	best := j.judge(u, value)
	j.emit(Evaluated{u, m, j.Eval.Monitor, best, time.Since(began)})
	return true, nil
}

// metrics evaluates with all ranks; ok is false if the context ended.
func (j *Job) metrics(ctx context.Context, u int64) (m map[string]float64, ok bool, err error) {
	if j.ranks != nil {
		if err := j.ranks.same(j.Runner, u); err != nil {
			return nil, false, err
		}
		return j.ranks.measured(ctx, j.Eval.Evaluator, j.Runner, j.slot)
	}
	m, err = Evaluate(ctx, j.Eval.Evaluator, j.Runner, j.slot)
	if err != nil && ctx.Err() != nil {
		return nil, false, nil
	}
	return m, err == nil, err
}

// warn reports warnings during the run.
func (j *Job) warn(u int64) {
	if t := j.Learning.Running(u); t != nil && u < j.Updates {
		t.Helps = j.advice(t.Kind)
		j.emit(Warned{u, t.String()})
	}
}

func (j *Job) advice(k WarningKind) []string {
	if j.Advise == nil {
		return nil
	}
	return j.Advise(k)
}

func (j *Job) emit(e Event) {
	if j.OnEvent != nil {
		j.OnEvent(e)
	}
}

// save passes a snapshot to the store, which writes it while the next updates compute. Disk
// errors are retried and reported by the store; only a snapshot that cannot be made ends
// the run.
func (j *Job) save(u int64) error {
	if j.Save.Store == nil || j.saved == u {
		return nil
	}
	began := time.Now()
	defer func() { j.saving += time.Since(began) }()
	snap, err := j.snapshot(u)
	if err != nil {
		return err
	}
	if err := j.Save.Store.SaveAsync(snap); err != nil {
		return err
	}
	j.saved = u
	if g, ok := snap.Live.(*gathered); ok {
		j.Save.Store.Attempted()
		return g.close()
	}
	return nil
}

func (j *Job) elapsed() float64 { return j.seconds + time.Since(j.began).Seconds() }

// stopped saves the state of a run that was asked to stop.
func (j *Job) stopped(u int64) (*Result, error) {
	if u == 0 {
		return j.result(u), ErrNothingSaved
	}
	if err := j.saveNow(u, false); err != nil {
		return j.result(u), err
	}
	return j.result(u), ErrStopped
}

// finish evaluates and saves the final state.
func (j *Job) finish(ctx context.Context, u int64, early bool) (*Result, error) {
	evaluate := j.Eval.Evaluator != nil && j.evaluated != u
	if evaluate {
		if _, err := j.evaluate(ctx, u); err != nil {
			return nil, err
		}
		if j.evaluated != u { // interrupted: the resumed run will do it
			return j.stopped(u)
		}
	}
	warning, first := j.Learning.End(u)
	if warning != nil {
		warning.Helps = j.advice(warning.Kind)
		if first {
			j.emit(Ended{warning})
		}
	}
	err := j.saveNow(u, evaluate)
	if err == nil {
		if text := j.problem(u); text != "" && j.leads() { // without a store, nothing reports it
			err = &BadStateError{Update: u, Bad: checkpoint.BadError{Health: checkpoint.Health{Problem: text}}, Helps: j.advice(Diverged), Kept: j.kept()}
		}
	}
	res := j.result(u)
	res.StoppedEarly, res.Warning = early, warning
	return res, err
}

// saveNow saves and waits until the checkpoint is on disk. An existing one is replaced
// only if the state has changed since. All ranks take part if each has states that others do not have.
func (j *Job) saveNow(u int64, changed bool) error {
	err := j.saveLast(u, changed)
	if !j.gathers() || errors.As(err, new(*dist.LostError)) || errors.As(err, new(*dist.EndedError)) {
		return err
	}
	return errors.Join(err, j.agree(u, new(decision)))
}

func (j *Job) saveLast(u int64, changed bool) error {
	if j.Save.Store == nil {
		return nil
	}
	ctx := context.Background()
	if !changed && j.from != "" && j.resumed == u {
		return nil
	}
	if !changed && j.saved == u {
		err := j.Save.Store.Flush(ctx)
		if err == nil || errors.As(err, new(*checkpoint.BadError)) {
			return j.spoiled(u, err)
		}
	}
	snap, err := j.snapshot(u)
	if err != nil {
		return err
	}
	// A save that waits for a retry gives way to this one.
	if err := j.Save.Store.SaveAsync(snap); err != nil {
		return err
	}
	j.saved = u
	g, shared := snap.Live.(*gathered)
	if shared {
		if j.Save.Store.Attempted(); g.lost() {
			return g.close() // no other attempt can succeed
		}
	}
	err = j.Save.Store.Flush(ctx)
	if shared {
		if e := g.close(); e != nil {
			return e
		}
	}
	return j.spoiled(u, err)
}

func (j *Job) result(u int64) *Result {
	r := &Result{Update: u, Tokens: j.tokens, Loss: j.lastLoss, Metrics: j.latest, BestAt: j.bestAt,
		Skipped: j.skipped, FirstUpdate: j.firstAt, Seconds: j.elapsed(), Checkpoint: j.kept()}
	if j.best != nil {
		r.Best, r.HasBest = float64(j.best.Value), true
	}
	return r
}
