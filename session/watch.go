package session

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// watch passes events on to the log and to the observer.
func (r *run) watch(e train.Event) {
	if s, ok := e.(train.Step); ok {
		s.FLOPs = r.speed.update(&s)
		e = s
	}
	r.follow(e)
	if r.exporter != nil {
		r.exporter.add(e, r.Model.Unit)
	}
	if err := r.recorder.Record(e); err != nil && !r.unrecorded {
		r.unrecorded = true
		r.warnf("%s: %v; its lines are kept in memory until they can be written", train.MetricsFile, err)
	}
	if s, ok := e.(train.Step); ok {
		if s.Update == r.auditAt() {
			r.audit()
		}
	}
	r.emit(e)
}

// follow keeps the telemetry up to date with what the run does.
func (r *run) follow(e train.Event) {
	switch e := e.(type) {
	case train.Step:
		r.lastUpdate = e.Update
		r.telemetry.updated(e.Update)
		r.telemetry.does(monitor.Training)
	case train.Evaluating:
		r.telemetry.does(monitor.Evaluating)
	case train.Evaluated:
		r.telemetry.does(monitor.Training)
	}
}

// auditAt returns the update by which every parameter must have received a gradient.
func (r *run) auditAt() int64 {
	return max(1, r.Model.AllReached)
}

// audit reports, after the first updates, which parameters received no gradient.
func (r *run) audit() {
	for _, name := range r.program.Untrained {
		r.warnf("parameter %s does not influence the loss and is not trained", name)
	}
	names, err := r.zeroGradients()
	if err != nil {
		r.warnf("the gradients cannot be read: %v", err)
	}
	for _, name := range names {
		r.warnf("parameter %s got gradients of exactly zero up to update %d", name, r.auditAt())
	}
}

// trace returns the name of the optimizer state that stays zero, or as small as Adafactor allows, while all
// gradients of a weight are zero. It is empty if the weight is not trained, or if this process does not have
// all of it.
func (r *run) trace(weight string) string {
	for _, prefix := range []string{engine.Scale2, engine.Moment2, engine.Rows2, engine.Moment1} {
		s := r.program.State(prefix + weight)
		if s == nil {
			continue
		}
		if shards := r.program.Shards; shards != nil && slices.ContainsFunc(shards.Whole, func(w *graph.State) bool { return w.Name == s.Name && !w.Type.Equal(s.Type) }) {
			return ""
		}
		return s.Name
	}
	return ""
}

// zeroGradients returns the trained weights whose gradients were all zero.
func (r *run) zeroGradients() (names []string, err error) {
	least := float32(0)
	if r.Config.Training.Optimizer == string(engine.Adafactor) {
		least = engine.AdafactorEps * (1 + 1e-4) // allows for rounding
	}
	for _, s := range r.program.States {
		if s.Role != graph.Weight {
			continue
		}
		moment := r.trace(s.Name)
		if moment == "" {
			continue
		}
		zero := true
		err := r.runner.ScanState(moment, func(part engine.Tensor) (goOn bool) {
			zero = !slices.ContainsFunc(part.F32(), func(x float32) bool { return !(x >= -least && x <= least) })
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

// saved passes on events of the checkpoint store, from its goroutine.
func (r *run) saved(e checkpoint.Event) {
	if e.Kind == checkpoint.Moved {
		out := r.asOut(e.Path)
		if r.phase != nil {
			r.phase.whole.said.Store(&out)
		}
		r.warnf("the run folder was moved: the run continues in %s; resume it with --out %s", e.Path, shell.Path(out))
	} else {
		r.emit(e)
	}
	if r.recorder == nil {
		return // data is still being prepared
	}
	if err := r.recorder.Record(e); err != nil {
		r.warnf("%v", err)
	}
	if e.Kind == checkpoint.Saved {
		r.keepConfig()
	}
	if e.Kind == checkpoint.Saved && r.uploads != nil {
		if err := r.uploads.Enqueue(filepath.Base(e.Path)); err != nil {
			r.warnf("%v", err)
		}
	}
}

// keepConfig restores configuration files that somebody removed.
func (r *run) keepConfig() {
	err := r.restore(r.store.Run(), r.Config)
	if r.phase != nil {
		err = errors.Join(err, r.phase.whole.keepConfig())
	}
	if err != nil {
		r.warnf("%v", err)
	}
}

// restore writes the configuration of the run in dir again if somebody removed the file.
func (t *training) restore(dir *rundir.Dir, c *config.Config) error {
	if _, err := dir.Root().Lstat(checkpoint.ConfigFile); !errors.Is(err, fs.ErrNotExist) || dir.Check() != nil {
		return nil // the state of the folder is reported elsewhere
	}
	t.warnf("%s was removed while the run goes on: it is written again", dir.Join(checkpoint.ConfigFile))
	return dir.Replace(checkpoint.ConfigFile, c.YAML())
}
