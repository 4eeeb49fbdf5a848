package session

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/internal/strictjson"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// whole is a run in phases, each of which is a run in a folder of its own below dir.
//
// It has an identity, in its lock and in every checkpoint of its phases, and each of
// these names the checkpoints of other phases that it was made of. So a phase that was
// left behind, by --fresh or because an earlier one was trained on, is never taken for
// one that is done.
type whole struct {
	*training
	config  *config.Config
	path    string      // where the folder is
	dir     *rundir.Dir // it, locked; nil while it is only looked at
	id      string      // identity; empty: none yet
	steps   []*step
	began   bool                   // the folder is that of this run
	trained bool                   // a phase was
	said    atomic.Pointer[string] // where the folder was said to be
}

// step is a phase and what becomes of it.
type step struct {
	system.Phase
	config *config.Config // with the settings of the phase
	found  *found         // nil: there is nothing of it
	todo   todo
	why    string // of startOver
}

// todo is what becomes of a phase.
type todo int

const (
	leave     todo = iota // it is not to be run now
	skip                  // it is done
	begin                 // there is nothing of it yet
	proceed               // it goes on from its newest checkpoint
	startOver             // what there is of it is replaced
)

// found is what there is of a phase.
type found struct {
	run      string
	lineage  *checkpoint.Lineage // nil: of a version that recorded none
	recorded *config.Config
	summary  *Summary // nil: it never came to an end
}

// done reports whether the phase has come to its end.
func (f *found) done() bool { return f != nil && f.summary != nil && f.summary.Done }

// whole is the identity of the run in phases that the phase belongs to; empty: unknown.
func (f *found) whole() string {
	if f.lineage == nil {
		return ""
	}
	return f.lineage.Whole
}

// phases trains one phase after the other, each in its folder below dir. A resumed run
// skips those that are done. All that can be refused is refused before the first of them
// begins.
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
			return ended, err
		}
	}
	return ended, w.rest()
}

// rest says which phases were not part of this training and are still to be trained.
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
		w.infof("%s: still to be trained (snug train --resume --out %s --phase all)", few.Of(names), w.path)
	}
	return nil
}

// moved says where the folder is now, unless the phase that was trained has said so.
func (w *whole) moved(to string) {
	if said := w.said.Swap(&to); said == nil || *said != to {
		w.warnf("the run folder was moved: the run continues in %s; resume it with --out %s", to, to)
	}
}

// begin makes the folder that of this run. From here on a resume continues it.
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

// lacksAll reports whether nothing of the run is there: it was refused before it began.
func (w *whole) lacksAll() bool {
	return !w.began && !slices.ContainsFunc(w.steps, func(s *step) bool { return s.found != nil })
}

// anew reports whether all phases are started over.
func (w *whole) anew() bool {
	return w.Fresh && !slices.ContainsFunc(w.steps, func(s *step) bool { return s.Skip })
}

// startedOver reports whether the run has started over another one, to which a phase may belong.
func (w *whole) startedOver(id string) bool {
	if w.dir == nil {
		return rundir.StartedOver(w.path, id)
	}
	return w.dir.StartedOver(id)
}

// vacant refuses a folder that has a run which is not in phases. Nothing is replaced
// there, by --fresh neither: it has another kind of run.
func (w *whole) vacant() error {
	list, err := checkpoint.List(filepath.Join(w.path, checkpoint.Folder))
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%s has a run that is not in phases, with %d checkpoints: choose another --out for %s, which trains in phases", w.path, len(list), w.config.System)
}

// plan finds out what there is and decides what becomes of each phase.
func (w *whole) plan() error {
	if err := w.sameSystem(); err != nil {
		return err
	}
	for _, p := range w.system().Phases(w.config, w.path) {
		s := &step{Phase: p}
		var err error
		if s.config, err = w.configOf(p); err != nil {
			return err
		}
		if s.found, err = w.find(p.Name); err != nil {
			return err
		}
		w.steps = append(w.steps, s)
	}
	if w.id = rundir.LastRun(w.path); w.dir != nil {
		w.id = w.dir.ID()
	}
	for _, s := range w.steps { // the first phase is that of the newest run
		if w.id == "" && s.found != nil {
			w.id = s.found.whole()
		}
	}
	for _, s := range w.steps {
		if err := w.decide(s); err != nil {
			return err
		}
	}
	if err := w.unfit(); err != nil {
		return err
	}
	return w.idle()
}

func (w *whole) system() system.System { return SystemOf(w.config) }

// sameSystem refuses a folder with the phases of another system.
func (w *whole) sameSystem() error {
	if !checkpoint.InPhases(w.path) {
		return nil
	}
	old, err := w.recorded(w.path)
	if err != nil || old.System == w.config.System { // an unreadable file is written anew
		return nil
	}
	return usage("%s has a run in phases of %s, and this is %s: choose another --out", w.path, old.System, w.config.System)
}

// configOf is the configuration of a phase, whose data is not fetched.
func (w *whole) configOf(p system.Phase) (*config.Config, error) {
	from := w.from(p.Settings)
	from.Fetch = notData(from.Fetch)
	return config.Load(from)
}

// find looks at the folder of a phase; nil: there is no checkpoint to continue from.
func (w *whole) find(name string) (*found, error) {
	dir := filepath.Join(w.path, name)
	if st, err := os.Lstat(dir); err == nil && !st.IsDir() {
		return nil, fmt.Errorf("%s is %s, where the phase has its folder: remove it", dir, regular.Kind(st.Mode()))
	}
	list, err := checkpoint.List(filepath.Join(dir, checkpoint.Folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(e checkpoint.Entry) bool { return e.Problem == nil })
	if i < 0 {
		return nil, nil // the phase itself says what is wrong with them
	}
	f := &found{run: checkpoint.OwnerOf(list), lineage: list[i].Manifest.Lineage}
	if f.recorded, err = w.recorded(list[i].Path); err != nil {
		return nil, fmt.Errorf("the configuration of %s: %w", list[i].Path, err)
	}
	if f.summary, err = readSummary(dir); err != nil {
		return nil, err
	}
	if f.summary != nil && f.summary.Run != "" && f.run != "" && f.summary.Run != f.run {
		f.summary = nil // of a run that was started over
	}
	return f, nil
}

// step is a phase by its name.
func (w *whole) step(name string) *step {
	i := slices.IndexFunc(w.steps, func(s *step) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return w.steps[i]
}

// uses are the phases whose weights one uses, as far as they are configured.
func (w *whole) uses(s *step) (list []*step) {
	for _, name := range append([]string{s.From}, s.Uses...) {
		if u := w.step(name); u != nil && u != s {
			list = append(list, u)
		}
	}
	return list
}

// decide decides what becomes of a phase. Those before it are decided.
func (w *whole) decide(s *step) error {
	f := s.found
	if f == nil {
		if !s.Skip {
			s.todo = begin
		}
		return w.usable(s)
	}
	left := w.id != "" && f.whole() != w.id && (f.lineage != nil || w.startedOver(""))
	if left && !w.startedOver(f.whole()) {
		return fmt.Errorf("%s belongs to another run in phases than %s: move it away", filepath.Join(w.path, s.Name), w.path)
	}
	if s.Skip {
		if left {
			s.found = nil // it counts as not there
		}
		return nil
	}
	switch {
	case w.Fresh:
		s.todo = startOver
	case left:
		s.todo, s.why = startOver, "it is left from before --fresh"
	case !w.Resume && w.Phase == "":
		return fmt.Errorf("%s has a run in phases, of which %s: continue with --resume, start over with --fresh, or choose another --out", w.path, w.state())
	case !w.Resume:
		s.todo = begin // the phase itself refuses to replace what is there
		return w.usable(s)
	default:
		why, err := w.outdated(s)
		switch {
		case err != nil:
			return err
		case why != "" && w.Phase == "":
			return usage("%s %s: it has to be trained again, which snug train --resume --out %s --phase all does", s.Name, why, w.path)
		case why != "":
			s.todo, s.why = startOver, "it "+why
		case !f.done():
			s.todo = proceed
		case f.summary.Dead() && f.differs(s):
			s.todo, s.why = startOver, "it learned nothing, and its settings are others now"
		case int64(s.config.Training.MaxSteps) > f.summary.UpdatesPlanned:
			if err := w.extends(s); err != nil {
				return err
			}
			s.todo = proceed
		default:
			s.todo = skip
			return nil
		}
	}
	return w.usable(s)
}

// state says which phases there are.
func (w *whole) state() string {
	var done, begun []string
	for _, s := range w.steps {
		switch {
		case s.found.done():
			done = append(done, s.Name)
		case s.found != nil:
			begun = append(begun, s.Name)
		}
	}
	var parts []string
	if len(done) > 0 {
		parts = append(parts, few.Of(done)+" are done")
	}
	if len(begun) > 0 {
		parts = append(parts, few.Of(begun)+" have begun")
	}
	return strings.Join(parts, " and ")
}

// outdated is why a phase does not follow from the phases before it as they are; empty:
// it does.
func (w *whole) outdated(s *step) (why string, err error) {
	if s.found == nil || s.found.lineage == nil {
		return "", nil
	}
	for _, u := range w.uses(s) {
		if u.todo == startOver || u.found == nil && u.todo != leave {
			return fmt.Sprintf("was trained on the weights of a %s that is started over", u.Name), nil
		}
		i := slices.IndexFunc(s.found.lineage.From, func(o checkpoint.Origin) bool { return o.Phase == u.Name })
		if i < 0 {
			continue // it did not use it then
		}
		now, err := w.origin(u)
		if err != nil {
			return "", err
		}
		if was := s.found.lineage.From[i]; !was.Same(now) {
			return fmt.Sprintf("was trained on the weights of %v, and the best now are those of update %d", was, now.Update), nil
		}
	}
	return "", nil
}

// origin is the checkpoint that represents a phase.
func (w *whole) origin(s *step) (o checkpoint.Origin, err error) {
	c, err := checkpoint.Choose(filepath.Join(w.path, s.Name), checkpoint.Best)
	if err != nil {
		return o, err
	}
	return checkpoint.OriginOf(s.Name, c)
}

// extends refuses to train a phase on whose weights others were trained, unless the
// phases to be run are named: those others would be lost.
func (w *whole) extends(s *step) error {
	if w.Phase != "" {
		return nil
	}
	var lost []string
	for _, x := range w.steps {
		if x.found != nil && slices.Contains(w.uses(x), s) {
			lost = append(lost, x.Name)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return usage("%s is done with %s, and %d would change the weights that %s were trained on: continue it and start those over with --phase all, or train another run with another --out", s.Name, size.Of(s.found.summary.UpdatesPlanned, "update"), s.config.Training.MaxSteps, few.Of(lost))
}

// usable refuses a phase that is to be trained where one that it uses is neither done nor
// trained before it.
func (w *whole) usable(s *step) error {
	if s.Skip {
		return nil
	}
	for _, u := range w.uses(s) {
		if !u.Skip {
			continue
		}
		what, err := w.outdated(u)
		if err != nil {
			return err
		}
		if what == "" && u.found.done() {
			continue
		}
		if what == "" {
			what = "is not done"
		}
		if u.found != nil && u.found.summary != nil && !u.found.done() {
			what = fmt.Sprintf("is not done (%d of %d updates)", u.found.summary.Updates, u.found.summary.UpdatesPlanned)
		}
		return usage("%s uses the weights of %s, which %s: train that first (snug train --resume --out %s --phase all trains what is missing)", s.Name, u.Name, what, w.path)
	}
	return nil
}

// kept reports whether what there is of a phase stays part of the run.
func (s *step) kept() bool { return s.found != nil && s.todo != startOver }

// unfit refuses settings with which phases that stay were not trained. They share data,
// and parts of a model.
func (w *whole) unfit() error {
	var all []change
	sys := w.system()
	for _, s := range w.steps {
		if !s.kept() {
			continue
		}
		for _, x := range s.changes() {
			same := func(y change) bool { return y.Key == x.Key && y.was == x.was }
			if x.settled(&sys) && x.Origin.Kind != config.Derived && !slices.ContainsFunc(all, same) {
				x.phase = s.Name
				all = append(all, x)
			}
		}
	}
	if len(all) > 0 {
		return cannotResume(w.path, w.path, all)
	}
	return nil
}

// changes are the settings of the phase that are not those of what there is of it, as far
// as they concern it.
func (s *step) changes() []change {
	return slices.DeleteFunc(changed(s.found.recorded, s.config), func(x change) bool {
		return s.Reads != nil && x.Key != "system" && !s.Reads(x.Key)
	})
}

// differs reports whether the settings of a phase are others than those of what there is
// of it.
func (f *found) differs(s *step) bool {
	return slices.ContainsFunc(s.changes(), func(x change) bool {
		section, _, _ := strings.Cut(x.Key, ".")
		return slices.Contains([]string{"system", "model", "training", "data", "phases"}, section) || strings.HasPrefix(section, "task")
	})
}

// idle refuses flags that concern none of the phases that are to be trained, and are not
// what those that are done were trained with.
func (w *whole) idle() error {
	for _, o := range w.from(nil).Overrides {
		var where []string
		var was string
		for _, s := range w.steps {
			reads := s.Reads == nil || s.Reads(o.Key)
			if s.todo != leave && s.todo != skip && reads {
				where = nil
				break
			}
			if s.found == nil {
				continue
			}
			for _, x := range s.changes() {
				if x.Key == o.Key && x.matters() {
					where, was = append(where, s.Name), x.was
				}
			}
		}
		if len(where) > 0 {
			return usage("%s %s would change nothing: it concerns %s, done with %s; start over with --fresh (one phase: --phase N --fresh), or omit it", cmp.Or(o.Flag, "--"+o.Key), o.Text, few.Of(where), was)
		}
	}
	return nil
}

// examineData refuses data that a later phase cannot be trained on before an earlier one
// is trained.
func (w *whole) examineData() error {
	first := true
	for _, s := range w.steps {
		if s.todo == leave || s.todo == skip {
			continue
		}
		if !first && s.Data != nil {
			if err := s.Data(w.ctx); err != nil {
				return err
			}
		}
		first = false
	}
	return nil
}

// train runs a phase, unless it is done.
func (w *whole) train(i int, began func() error) (*Summary, error) {
	s := w.steps[i]
	if err := w.here(); err != nil {
		return nil, err
	}
	how := *w.training
	switch s.todo {
	case skip:
		// Phases before it may have been trained meanwhile.
		if why, err := w.outdated(s); err != nil || why == "" {
			return w.skip(s, err)
		} else {
			s.todo, s.why = startOver, "it "+why
		}
	case proceed:
		if why, err := w.outdated(s); err != nil {
			return nil, err
		} else if why != "" {
			s.todo, s.why = startOver, "it "+why
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
	if err := w.dir.Check(); err != nil { // what was read was read here
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

// later are the phases after one that are to be trained.
func (w *whole) later(i int) (list []system.Phase) {
	for _, s := range w.steps[i+1:] {
		if s.todo != leave && s.todo != skip {
			list = append(list, s.Phase)
		}
	}
	return list
}

// skip is a phase that is done.
func (w *whole) skip(s *step, err error) (*Summary, error) {
	if err != nil {
		return nil, err
	}
	w.infof("%s: done", s.Name)
	if err := w.trackDone(s.config, filepath.Join(w.path, s.Name)); err != nil {
		w.warnf("metrics.mlflow: %s: %v", s.Name, err)
	}
	return s.found.summary, nil
}

// here makes sure that the folder is still there, and follows it where it was moved:
// settings of phases name others by their paths.
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

// keepConfig writes the configuration again where somebody removed it.
func (w *whole) keepConfig() error { return w.restore(w.dir, w.config) }

// phaseOf is the phase that a run is; nil: the run is not in phases.
type phaseOf struct {
	whole *whole
	name  string
	from  []checkpoint.Origin // what it was made of
	began func() error        // called once nothing can be refused any more
}

// String is its name, empty for none.
func (p *phaseOf) String() string {
	if p == nil {
		return ""
	}
	return p.name
}

// holds refuses a folder that is not the phase's: it may have been replaced, or be a link.
func (p *phaseOf) holds(dir *rundir.Dir) error {
	if p == nil || p.whole.dir.Holds(p.name, dir) {
		return nil
	}
	return fmt.Errorf("%s is not the folder of the phase in %s: it is a link, or was replaced at this moment", dir.Path(), p.whole.path)
}

// lineageOf is where the run comes from, which goes on from a checkpoint or is new (nil); nil: it
// is no phase. One that is resumed by itself, in its own folder, stays the phase that it is.
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

// origins are the checkpoints of other phases that the run is made of.
func (r *run) origins() []checkpoint.Origin {
	if r.lineage == nil {
		return nil
	}
	return r.lineage.From
}

// alive is an error where the phase with a name, below dir, has learned nothing.
func alive(dir, name string) error {
	if name == "" {
		return nil
	}
	s, err := readSummary(filepath.Join(dir, name))
	if err != nil || s == nil || !s.Dead() {
		return err
	}
	return fmt.Errorf("%s, which learned nothing: %v\neverything trained so far is kept; start %s over with other settings: snug train --resume --out %s --phase all, with the setting that helps as a flag", name, s.Warning, name, dir)
}

// PhaseSummary is how a phase ended.
type PhaseSummary struct {
	Phase string `json:"phase"`
	*Summary
}

// readSummary reads the summary of the run in dir, nil if it has none.
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
