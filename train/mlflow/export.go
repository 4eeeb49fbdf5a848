package mlflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/snug-ml/snug/train/rundir"
)

// Run describes a run to a server.
type Run struct {
	Experiment string // its name; empty: ExperimentID
	// ExperimentID is an identifier; empty: the experiment Default's.
	ExperimentID string
	Name         string
	Start        time.Time
	Params, Tags []Pair
}

// Source provides the points of a run.
type Source interface {
	// Metrics returns the next points, about as many as requested; none: there are no
	// more yet. Points of a key come in the order of their steps.
	Metrics(most int) ([]Metric, error)
	// Samples returns points of the machine after a time, in seconds since 1970, and the
	// time of the last of them.
	Samples(after float64) ([]Metric, float64, error)
}

// Options configure an Exporter.
type Options struct {
	Warn, Info func(format string, args ...any)
	// Again is the command that sends later what could not be sent.
	Again string

	every   time.Duration // between checks for new points
	samples time.Duration // between samples of the machine
	notice  time.Duration // without an answer, after which that is reported
	pause   func(failures int) time.Duration
	grace   time.Duration // without progress at the end
	longest time.Duration // in total at the end
}

func (o *Options) defaults() {
	o.every, o.samples, o.notice = 5*time.Second, 30*time.Second, 30*time.Second
	o.grace, o.longest = 10*time.Second, time.Minute
	o.pause = func(failures int) time.Duration {
		return rand.N(min(time.Second<<min(failures-1, 6), time.Minute)) + 50*time.Millisecond
	}
}

// Exporter sends a run to a server while it is running.
type Exporter struct {
	server *Server
	dir    *rundir.Dir
	run    Run
	source Source
	opts   Options

	cancel context.CancelCauseFunc
	ending chan ending
	done   chan struct{}
	alive  atomic.Int64 // when the server last answered, in milliseconds since 1970
	down   atomic.Bool  // it did not answer the last time
	over   atomic.Bool  // the run has ended: no one listens

	// Used only by the goroutine.
	note    Note
	begun   bool
	sent    map[string]int64 // the last step of each key that the server has
	waiting []Metric         // read but not sent yet
	looked  time.Time        // when the machine was last looked at
	last    int64            // the last step that the server has
	failing time.Time        // since when it has not answered; zero: it does
	trouble error            // and why
	warned  bool
	ended   bool // all points were sent after the last update
}

// ending says how a run ended.
type ending struct {
	status Status
	at     time.Time
}

// Start begins to send the run in dir.
func Start(s *Server, dir *rundir.Dir, run Run, source Source, opts Options) *Exporter {
	if opts.every == 0 {
		opts.defaults()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	x := &Exporter{
		server: s, dir: dir, run: run, source: source, opts: opts,
		cancel: cancel, ending: make(chan ending, 1), done: make(chan struct{}), sent: map[string]int64{},
	}
	go x.work(ctx)
	return x
}

// work sends what is new until the run has ended or the server refuses it for good.
func (x *Exporter) work(ctx context.Context) {
	defer close(x.done)
	end, failures := (*ending)(nil), 0
	for {
		err := x.catchUp(ctx)
		if err == nil && end != nil {
			if err = x.finish(ctx, end); err == nil {
				x.answered()
				return
			}
		}
		pause := x.opts.every
		switch {
		case err == nil:
			x.answered()
			failures = 0
		case ctx.Err() != nil:
			x.giveUp(cmp.Or(x.trouble, err))
			return
		case permanent(err):
			x.giveUp(err)
			return
		default:
			failures++
			x.fails(err)
			pause = x.opts.pause(failures)
			if end != nil {
				pause = min(pause, x.opts.grace/10) // there is not much time
			}
		}
		select {
		case e := <-x.ending:
			end = &e
		case <-time.After(pause):
		case <-ctx.Done():
			x.giveUp(cmp.Or(err, context.Cause(ctx)))
			return
		}
	}
}

// permanent reports whether no retry can fix an error: those that the server says so
// about, and those of this machine's files.
func permanent(err error) bool {
	e := (*Error)(nil)
	return !errors.As(err, &e) || e.Permanent
}

// catchUp sends everything that there is so far.
func (x *Exporter) catchUp(ctx context.Context) error {
	if !x.begun {
		if err := x.begin(ctx); err != nil {
			return err
		}
		x.begun = true
	}
	for {
		if len(x.waiting) == 0 {
			more, err := x.source.Metrics(maxMetrics)
			if err != nil {
				return err
			}
			if len(more) == 0 {
				return x.sample(ctx)
			}
			x.waiting = slices.DeleteFunc(more, x.has)
		}
		for len(x.waiting) > 0 {
			now := x.waiting[:min(len(x.waiting), maxMetrics)]
			if err := x.server.log(ctx, batch{RunID: x.note.RunID, Metrics: now}); err != nil {
				return err
			}
			x.alive.Store(time.Now().UnixMilli())
			for _, m := range now {
				x.last = max(x.last, m.Step)
			}
			x.waiting = x.waiting[len(now):]
		}
	}
}

// has reports whether the server had a point before this session: a run resumed from a
// checkpoint repeats what came after it, bit for bit, at another time.
func (x *Exporter) has(m Metric) bool {
	step, ok := x.sent[Name(m.Key)]
	return ok && m.Step <= step
}

// sample sends samples of the machine.
func (x *Exporter) sample(ctx context.Context) error {
	if time.Since(x.looked) < x.opts.samples {
		return nil
	}
	points, until, err := x.source.Samples(x.note.Samples)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(points, maxMetrics) {
		if err := x.server.log(ctx, batch{RunID: x.note.RunID, Metrics: part}); err != nil {
			return err
		}
		x.alive.Store(time.Now().UnixMilli())
	}
	x.looked = time.Now()
	if len(points) == 0 {
		return nil
	}
	x.note.Samples = until
	x.keep()
	return nil
}

// begin finds the run on the server, or creates it, and describes it.
func (x *Exporter) begin(ctx context.Context) error {
	x.note = ReadNote(x.dir)
	x.note.Done = false
	there, err := x.known(ctx)
	if err == nil && there == nil {
		there, err = x.open(ctx)
	}
	if err != nil {
		return err
	}
	x.note.Server, x.note.Experiment, x.note.RunID = x.server.String(), there.Info.Experiment, there.Info.RunID
	x.keep()
	for _, m := range there.Data.Metrics {
		x.sent[m.Key] = int64(m.Step)
		if !IsSystem(m.Key) {
			x.last = max(x.last, int64(m.Step))
		}
	}
	if there.Info.Status != Running {
		if err := x.server.update(ctx, x.note.RunID, Running, time.Time{}); err != nil {
			return err
		}
	}
	if err := x.describe(ctx, there); err != nil {
		return err
	}
	x.alive.Store(time.Now().UnixMilli())
	x.info("%s", x.page())
	return nil
}

// known returns the run of the note, nil if there is none.
func (x *Exporter) known(ctx context.Context) (*state, error) {
	id := x.note.RunID
	if id == "" {
		return nil, nil
	}
	there, err := x.server.run(ctx, id)
	if missing(err) || err == nil && there.Info.Stage == "deleted" {
		x.note.RunID, x.note.Samples = "", 0
		x.info("the run %s is no longer on %s: all of the run goes to another", id, x.server)
		return nil, nil
	}
	return there, err
}

// IdentityTag holds the identity of a run, by which it can be found again.
const IdentityTag = "snug.run"

// open finds the run by its identity, or makes it.
func (x *Exporter) open(ctx context.Context) (*state, error) {
	experiment := x.run.ExperimentID
	if x.run.Experiment != "" {
		var err error
		if experiment, err = x.server.experiment(ctx, x.run.Experiment); err != nil {
			return nil, err
		}
	} else if experiment == "" {
		experiment = defaultName
	}
	identity := Pair{IdentityTag, x.note.Run}
	there, err := x.server.find(ctx, experiment, identity)
	if there != nil || err != nil {
		return there, err
	}
	return x.server.create(ctx, experiment, x.run.Name, x.run.Start, append([]Pair{identity}, tags(x.run.Tags)...))
}

// tags returns those that have a value, in the form that the server accepts.
func tags(list []Pair) (out []Pair) {
	for _, t := range list {
		if t.Value != "" {
			out = append(out, Pair{Name(t.Key), value(t.Value, maxTag)})
		}
	}
	return out
}

// describe sends parameters and tags. A parameter cannot be replaced: one that was changed
// when the run was resumed becomes a tag.
func (x *Exporter) describe(ctx context.Context, there *state) error {
	has := map[string]string{}
	for _, p := range there.Data.Params {
		has[p.Key] = p.Value
	}
	var params []Pair
	more := tags(x.run.Tags)
	for _, p := range x.run.Params {
		p = Pair{Name(p.Key), value(p.Value, maxParam)}
		was, ok := has[p.Key]
		switch {
		case !ok:
			params = append(params, p)
			has[p.Key] = p.Value
		case was != p.Value:
			more = append(more, Pair{Name("changed." + p.Key), cut(p.Value, maxTag, "...")})
		}
	}
	for _, part := range batches(params, maxParams) {
		if err := x.server.log(ctx, batch{RunID: x.note.RunID, Params: part}); err != nil {
			return err
		}
	}
	for _, part := range batches(more, maxTags) {
		if err := x.server.log(ctx, batch{RunID: x.note.RunID, Tags: part}); err != nil {
			return err
		}
	}
	return nil
}

// page returns the address at which people can view the run.
func (x *Exporter) page() string {
	return fmt.Sprintf("%s/#/experiments/%s/runs/%s", x.server, url.PathEscape(x.note.Experiment), url.PathEscape(x.note.RunID))
}

// finish reports how the run ended.
func (x *Exporter) finish(ctx context.Context, e *ending) error {
	x.ended, x.looked = true, time.Time{}
	if err := x.sample(ctx); err != nil {
		return err
	}
	if err := x.server.update(ctx, x.note.RunID, e.status, e.at); err != nil {
		return err
	}
	x.note.Done = true
	x.keep()
	return nil
}

// fails records that the server does not answer, and warns once that has lasted.
func (x *Exporter) fails(err error) {
	x.down.Store(true)
	x.trouble = err
	now := time.Now()
	if x.failing.IsZero() {
		x.failing = now
	}
	if !x.warned && now.Sub(x.failing) >= x.opts.notice {
		x.warned = true
		x.warn("%v; the run goes on, and %s, which is not there yet, is sent once the server answers", err, x.missing())
	}
}

// answered records that it does.
func (x *Exporter) answered() {
	if x.warned {
		x.info("%s answers again and has everything", x.server)
	}
	x.down.Store(false)
	x.failing, x.trouble, x.warned = time.Time{}, nil, false
}

// giveUp reports what the server lacks and how to send it.
func (x *Exporter) giveUp(err error) {
	text := fmt.Sprintf("%v; the server lacks %s, which metrics.jsonl has: ", err, x.missing()) + "`" + x.opts.Again + "` sends it"
	if x.warned {
		x.info("%s", text)
		return
	}
	x.warned = true
	x.warn("%s", text)
}

// missing says which parts of the run the server does not have.
func (x *Exporter) missing() string {
	switch {
	case x.ended:
		return "how the run ended"
	case !x.begun:
		return "what this session did"
	case x.last == 0:
		return "every update"
	}
	return fmt.Sprintf("what came after update %d", x.last)
}

func (x *Exporter) warn(format string, args ...any) {
	if !x.over.Load() {
		x.opts.Warn("metrics.mlflow: "+format, args...)
	}
}

func (x *Exporter) info(format string, args ...any) {
	if !x.over.Load() {
		x.opts.Info("metrics.mlflow: "+format, args...)
	}
}

// End sends what is left and how the run ended, as long as the server keeps answering, but
// for at most a minute.
func (x *Exporter) End(status Status) {
	defer x.cancel(nil)
	began, grace := time.Now(), x.opts.grace
	if x.down.Load() {
		grace /= 5
	}
	x.ending <- ending{status, began}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-x.done:
			x.over.Store(true)
			return
		case now := <-tick.C:
			alive := time.UnixMilli(x.alive.Load())
			if alive.Before(began) {
				alive = began
			}
			if now.Sub(began) > x.opts.longest || now.Sub(alive) > grace {
				x.abandon()
				return
			}
		}
	}
}

// abandon cancels what is in progress, and waits until that is reported.
func (x *Exporter) abandon() {
	x.cancel(fmt.Errorf("no answer in the %s for which the end of a run waits", x.opts.grace))
	select {
	case <-x.done:
	case <-time.After(x.opts.grace / 5): // a disk that hangs
	}
	x.over.Store(true)
}
