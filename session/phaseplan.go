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

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

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
	return fmt.Errorf("%s has a run that is not in phases, with %s: choose another --out for %s, which trains in phases", w.path, size.Of(len(list), "checkpoint"), w.config.System)
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
	f := &found{run: checkpoint.OwnerOf(list)}
	list = slices.DeleteFunc(list, func(e checkpoint.Entry) bool { return e.Problem != nil })
	if len(list) == 0 {
		return nil, nil // the phase itself says what is wrong with them
	}
	f.lineage = list[0].Manifest.Lineage
	if f.recorded, err = w.recordedBy(list); err != nil {
		return nil, fmt.Errorf("the configuration of %s: %w", list[0].Path, err)
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

// due reports whether the phase is to be trained.
func (s *step) due() bool { return s.todo != leave && s.todo != skip }

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
			if s.due() && reads {
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
		if !s.due() {
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
