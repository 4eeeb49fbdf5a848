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
	"github.com/snug-ml/snug/internal/shell"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// step is a phase and what will be done with it.
type step struct {
	system.Phase
	config *config.Config // with the settings of the phase
	found  *found         // nil if nothing exists yet
	todo   todo
	why    string // reason for startOver
}

// todo is what will be done with a phase.
type todo int

const (
	leave     todo = iota // not selected for this run
	skip                  // already done
	begin                 // nothing exists yet
	proceed               // continue from the newest checkpoint
	startOver             // replace what exists
)

// found is what exists of a phase.
type found struct {
	run      string
	lineage  *checkpoint.Lineage // nil if written by a version that did not record it
	recorded *config.Config
	summary  *Summary // nil if the phase never ended
}

// done reports whether the phase is complete.
func (f *found) done() bool { return f != nil && f.summary != nil && f.summary.Done }

// whole returns the identity of the run in phases that the phase belongs to; empty if unknown.
func (f *found) whole() string {
	if f.lineage == nil {
		return ""
	}
	return f.lineage.Whole
}

// vacant rejects a folder that holds a run without phases. Nothing there is replaced, not even by --fresh,
// because it is another kind of run.
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

// plan looks at what exists and decides what to do with each phase.
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
	for _, s := range w.steps { // the first phase has the identity of the newest run
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

// sameSystem rejects a folder that holds phases of another system.
func (w *whole) sameSystem() error {
	if !checkpoint.InPhases(w.path) {
		return nil
	}
	old, err := w.recorded(w.path)
	if err != nil || old.System == w.config.System { // an unreadable file is rewritten
		return nil
	}
	return usage("%s has a run in phases of %s, and this is %s: choose another --out", w.path, old.System, w.config.System)
}

// configOf returns the configuration of a phase, without fetching its data.
func (w *whole) configOf(p system.Phase) (*config.Config, error) {
	from := w.from(p.Settings)
	from.Fetch = notData(from.Fetch)
	return config.Load(from)
}

// find looks at the folder of a phase. It returns nil if there is no checkpoint to continue from.
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
		return nil, nil // the phase itself reports what is wrong with them
	}
	f.lineage = list[0].Manifest.Lineage
	if f.recorded, err = w.recordedBy(list); err != nil {
		return nil, fmt.Errorf("the configuration of %s: %w", list[0].Path, err)
	}
	if f.summary, err = readSummary(dir); err != nil {
		return nil, err
	}
	if f.summary != nil && f.summary.Run != "" && f.run != "" && f.summary.Run != f.run {
		f.summary = nil // left from a run that was started over
	}
	return f, nil
}

// step returns a phase by its name.
func (w *whole) step(name string) *step {
	i := slices.IndexFunc(w.steps, func(s *step) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return w.steps[i]
}

// uses returns the configured phases whose weights s uses.
func (w *whole) uses(s *step) (list []*step) {
	for _, name := range append([]string{s.From}, s.Uses...) {
		if u := w.step(name); u != nil && u != s {
			list = append(list, u)
		}
	}
	return list
}

// decide decides what to do with a phase, after all earlier phases are decided.
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
			s.found = nil // treat it as absent
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
		s.todo = begin // the phase itself rejects replacing what exists
		return w.usable(s)
	default:
		why, err := w.outdated(s)
		switch {
		case err != nil:
			return err
		case why != "" && w.Phase == "":
			return usage("%s %s: it has to be trained again, which snug train --resume --out %s --phase all does", s.Name, why, shell.Path(w.path))
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

// state describes which phases exist.
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

// outdated says why a phase no longer follows from the current state of the earlier phases; empty if it does.
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
			continue // the phase did not use it at the time
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

// origin returns the checkpoint that represents a phase.
func (w *whole) origin(s *step) (o checkpoint.Origin, err error) {
	c, err := checkpoint.Choose(filepath.Join(w.path, s.Name), checkpoint.Best)
	if err != nil {
		return o, err
	}
	return checkpoint.OriginOf(s.Name, c)
}

// extends rejects training a phase further if other phases were trained on its weights, because those would
// be lost. It allows it if the user named the phases to run.
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

// usable rejects training a phase that uses another one which is neither done nor trained earlier in this
// run.
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
		return usage("%s uses the weights of %s, which %s: train that first (snug train --resume --out %s --phase all trains what is missing)", s.Name, u.Name, what, shell.Path(w.path))
	}
	return nil
}

// due reports whether the phase will be trained.
func (s *step) due() bool { return s.todo != leave && s.todo != skip }

// kept reports whether the existing part of a phase stays in the run.
func (s *step) kept() bool { return s.found != nil && s.todo != startOver }

// unfit rejects settings that differ from those of the phases that stay, because phases share data and parts
// of a model.
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

// changes returns the settings of the phase that differ from those it was trained with, as far as they
// concern it.
func (s *step) changes() []change {
	return slices.DeleteFunc(changed(s.found.recorded, s.config), func(x change) bool {
		return s.Reads != nil && x.Key != "system" && !s.Reads(x.Key)
	})
}

// differs reports whether the phase was trained with other settings than it has now.
func (f *found) differs(s *step) bool {
	return slices.ContainsFunc(s.changes(), func(x change) bool {
		section, _, _ := strings.Cut(x.Key, ".")
		return slices.Contains([]string{"system", "model", "training", "data", "phases"}, section) || strings.HasPrefix(section, "task")
	})
}

// idle rejects flags that would have no effect: they concern only phases that are done, and differ from what
// those were trained with.
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

// examineData rejects data that a later phase cannot be trained on, before an earlier phase is trained.
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
