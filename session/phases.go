package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/internal/strictjson"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// whole is a run in phases. Each phase is a run in its own folder below dir.
//
// The identity of the run is stored in its lock and in every checkpoint of its phases, and these checkpoints
// name the checkpoints of other phases that they were made from. So a stale phase, left by --fresh or by
// training an earlier phase further, is never mistaken for a finished one.
type whole struct {
	*training
	config  *config.Config
	path    string      // current path of the folder
	dir     *rundir.Dir // the folder, locked; nil until it is opened
	id      string      // identity; empty until there is one
	steps   []*step
	began   bool                   // the folder belongs to this run
	trained bool                   // a phase has been trained
	said    atomic.Pointer[string] // the last path that was reported for the folder
}

// phases trains one phase after another, each in its folder below dir. A resumed run skips the phases that
// are done. Everything that can be rejected is rejected before the first phase begins.
func (t *training) phases(c *config.Config, dir string) (ended []PhaseSummary, err error) {
	undo, err := makeDir(dir)
	if err != nil {
		return nil, err
	}
	w := &whole{training: t, config: c, path: dir}
	defer func() {
		if w.lacksAll() {
			undo()
		}
	}()
	if err := w.vacant(); err != nil {
		return nil, err
	}
	if w.dir, err = rundir.Open(dir, w.moved); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.dir.Close()) }()
	if err := w.plan(); err != nil {
		return nil, err
	}
	if err := w.examineData(); err != nil {
		return nil, err
	}
	if w.id != "" && w.dir.ID() == "" { // the lock was removed
		if err := errors.Join(w.dir.Begin(w.id), w.dir.InPhases()); err != nil {
			return nil, err
		}
	}
	began := sync.OnceValue(w.begin)
	for i, s := range w.steps {
		if s.Skip {
			continue
		}
		summary, err := w.train(i, began)
		if summary != nil {
			ended = append(ended, PhaseSummary{s.Name, summary})
		}
		if err != nil {
			return ended, w.between(s, ended, err)
		}
	}
	return ended, w.rest()
}

// between returns [train.ErrStopped] in place of err if the run was stopped while it prepared a phase after others
// that are done: all that was trained is saved.
func (w *whole) between(s *step, ended []PhaseSummary, err error) error {
	cause := context.Cause(w.ctx)
	if cause == nil || len(ended) == 0 || w.Group != nil || !errors.Is(err, context.Canceled) && !errors.Is(err, cause) {
		return err
	}
	w.infof("stopped while preparing %s, with the phases before it saved: snug train --resume --out %s continues", s.Name, shell.Path(w.path))
	return train.ErrStopped
}

// rest reports the phases that this training did not select and that still have to be trained.
func (w *whole) rest() error {
	var names []string
	for _, s := range w.steps {
		if !s.Skip {
			continue
		}
		why, err := w.outdated(s)
		if err != nil {
			return err
		}
		if why != "" || !s.found.done() {
			names = append(names, s.Name)
		}
	}
	if len(names) > 0 {
		w.infof("%s: still to be trained (snug train --resume --out %s --phase all)", few.Of(names), shell.Path(w.path))
	}
	return nil
}

// moved reports the new path of the folder, unless the current phase already has.
func (w *whole) moved(to string) {
	if said := w.said.Swap(&to); said == nil || *said != to {
		w.warnf("the run folder was moved: the run continues in %s; resume it with --out %s", to, shell.Path(to))
	}
}

// begin makes the folder belong to this run. From here on, resume continues it.
func (w *whole) begin() (err error) {
	switch {
	case w.anew():
		var before []string
		for _, s := range w.steps {
			if s.found != nil {
				before = append(before, s.found.whole())
			}
		}
		err = w.dir.StartOver(before...)
	case w.id == "":
		err = w.dir.Begin(rundir.NewID())
	default:
		err = w.dir.Begin(w.id)
	}
	w.id, w.began = w.dir.ID(), true
	return errors.Join(err, w.dir.InPhases(), w.dir.Replace(checkpoint.ConfigFile, w.config.YAML()))
}

// lacksAll reports whether nothing of the run exists, because it was rejected before it began.
func (w *whole) lacksAll() bool {
	return !w.began && !slices.ContainsFunc(w.steps, func(s *step) bool { return s.found != nil })
}

// anew reports whether all phases start over.
func (w *whole) anew() bool {
	return w.Fresh && !slices.ContainsFunc(w.steps, func(s *step) bool { return s.Skip })
}

// startedOver reports whether the run with this id, which a phase may belong to, was started over.
func (w *whole) startedOver(id string) bool {
	if w.dir == nil {
		return rundir.StartedOver(w.path, id)
	}
	return w.dir.StartedOver(id)
}

// train trains a phase, unless it is done.
func (w *whole) train(i int, began func() error) (*Summary, error) {
	s := w.steps[i]
	if err := w.here(); err != nil {
		return nil, err
	}
	how := *w.training
	if s.todo == skip || s.todo == proceed { // earlier phases may have been trained since it was decided
		why, err := w.outdated(s)
		switch {
		case err != nil:
			return nil, err
		case why != "":
			s.todo, s.why = startOver, "it "+why
		case s.todo == skip:
			return w.skip(s), nil
		}
	}
	switch s.todo {
	case startOver:
		if s.why != "" {
			w.infof("%s: starting it over: %s", s.Name, s.why)
		}
		how.Resume, how.Fresh = false, true
	case proceed:
		if s.found.done() {
			w.infof("%s: %s done, continuing to %d", s.Name, size.Of(s.found.summary.Updates, "update"), s.config.Training.MaxSteps)
		}
	}
	if err := alive(w.path, s.From); err != nil {
		return nil, fmt.Errorf("%s starts from %w", s.Name, err)
	}
	if s.Ready != nil {
		if err := s.Ready(); err != nil {
			return nil, fmt.Errorf("%s is not ready: %w", s.Name, err)
		}
	}
	var from []checkpoint.Origin
	for _, u := range w.uses(s) {
		o, err := w.origin(u)
		if err != nil {
			return nil, fmt.Errorf("%s uses the weights of %s: %w", s.Name, u.Name, err)
		}
		from = append(from, o)
	}
	if err := w.dir.Check(); err != nil { // the folder that was just read must still be this one
		return nil, err
	}
	setup, err := w.load(s.Settings)
	if err != nil {
		return nil, err
	}
	setup.ofPhase = true
	selected := slices.DeleteFunc(slices.Clone(w.steps), func(s *step) bool { return s.Skip })
	w.emit(PhaseBegins{slices.Index(selected, s) + 1, len(selected), s.Name, s.Title})
	if !w.trained {
		w.trained, how.phasesLater = true, w.later(i)
	}
	summary, err := how.one(setup, filepath.Join(w.path, s.Name), &phaseOf{w, s.Name, from, began})
	if err == nil {
		s.found, err = w.find(s.Name)
		s.todo = skip
	}
	return summary, err
}

// later returns the phases after step i that are to be trained.
func (w *whole) later(i int) (list []system.Phase) {
	for _, s := range w.steps[i+1:] {
		if s.due() {
			list = append(list, s.Phase)
		}
	}
	return list
}

// skip passes over a phase that is done.
func (w *whole) skip(s *step) *Summary {
	w.infof("%s: done", s.Name)
	if err := w.trackDone(s.config, filepath.Join(w.path, s.Name)); err != nil {
		w.warnf("metrics.mlflow: %s: %v", s.Name, err)
	}
	return s.found.summary
}

// here checks that the folder still exists. If it was moved, it follows, because settings of phases contain
// paths of other phases.
func (w *whole) here() error {
	if err := w.dir.Check(); err != nil {
		return err
	}
	if to := w.dir.Path(); to != w.path {
		w.path = to
		for k, p := range w.system().Phases(w.config, to) {
			w.steps[k].Phase = p
		}
	}
	return nil
}

// keepConfig restores the configuration file if somebody removed it.
func (w *whole) keepConfig() error { return w.restore(w.dir, w.config) }

// phaseOf is the phase that a run implements; nil if the run is not in phases.
type phaseOf struct {
	whole *whole
	name  string
	from  []checkpoint.Origin // what the phase was made from
	began func() error        // called once nothing can be rejected any more
}

// String returns the name of the phase; empty for nil.
func (p *phaseOf) String() string {
	if p == nil {
		return ""
	}
	return p.name
}

// holds rejects a folder that does not belong to the phase, because it was replaced or is a link.
func (p *phaseOf) holds(dir *rundir.Dir) error {
	if p == nil || p.whole.dir.Holds(p.name, dir) {
		return nil
	}
	return fmt.Errorf("%s is not the folder of the phase in %s: it is a link, or was replaced at this moment", dir.Path(), p.whole.path)
}

// lineageOf returns the lineage of the run, which continues from a checkpoint or, if that is nil, is new. It
// returns nil if the run is not a phase. A phase that is resumed alone, in its own folder, remains that
// phase.
func (r *run) lineageOf(from *checkpoint.Checkpoint) (*checkpoint.Lineage, error) {
	switch {
	case r.phase != nil:
		return &checkpoint.Lineage{Whole: r.phase.whole.id, From: r.phase.from}, nil
	case from == nil || from.Manifest.Lineage == nil:
		return nil, nil
	}
	l := from.Manifest.Lineage
	for _, o := range l.From {
		if _, err := o.Find(filepath.Dir(filepath.Clean(r.dir))); err != nil {
			return nil, errors.Join(err, from.Close())
		}
	}
	return l, nil
}

// origins returns the checkpoints of other phases that the run was made from.
func (r *run) origins() []checkpoint.Origin {
	if r.lineage == nil {
		return nil
	}
	return r.lineage.From
}

// alive returns an error if the named phase below dir has learned nothing.
func alive(dir, name string) error {
	if name == "" {
		return nil
	}
	s, err := readSummary(filepath.Join(dir, name))
	if err != nil || s == nil || !s.Dead() {
		return err
	}
	return fmt.Errorf("%s, which learned nothing: %v\neverything trained so far is kept; start %s over with other settings: snug train --resume --out %s --phase all, with the setting that helps as a flag", name, s.Warning, name, shell.Path(dir))
}

// PhaseSummary is the summary of one phase.
type PhaseSummary struct {
	Phase string `json:"phase"`
	*Summary
}

// readSummary reads the summary of the run in dir; nil if it has none.
func readSummary(dir string) (*Summary, error) {
	raw, err := regular.Read(filepath.Join(dir, SummaryFile), regular.Text)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var s Summary
	if err == nil {
		err = strictjson.Unmarshal(raw, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, SummaryFile), err)
	}
	return &s, nil
}
