package session

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/internal/strictjson"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// phases trains one phase after the other, each in its folder below dir. A resumed
// run skips those that are done, with two exceptions: what is now to be trained for
// longer continues, and what learned nothing is started over if its settings have
// changed.
func (t *training) phases(c *config.Config, phases []system.Phase, dir string) (ended []PhaseSummary, err error) {
	yaml := c.YAML()
	if t.Resume || t.Phase != "" {
		all, err := t.changes(dir, c)
		if err != nil {
			return nil, err
		}
		if all = slices.DeleteFunc(all, func(x change) bool { return !x.ofModel() }); len(all) > 0 {
			return nil, cannotResume(dir, dir, all)
		}
	}
	undo, err := makeDir(dir)
	if err != nil {
		return nil, err
	}
	defer undo()
	whole, err := rundir.Look(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, whole.Close()) }()
	// The phases' configuration is written as theirs is: once one of them begins.
	began := sync.OnceValue(func() error { return whole.Replace(checkpoint.ConfigFile, yaml) })
	first := true // nothing was trained yet
	for i, p := range phases {
		if err := whole.Check(); err != nil {
			return ended, err
		}
		sub, how := whole.Join(p.Name), *t
		s, err := t.load(p.Settings)
		if err != nil {
			return ended, err
		}
		if t.Resume {
			before, err := readSummary(sub)
			if err != nil {
				return ended, err
			}
			if before != nil && before.Done {
				again := false
				if before.Dead() {
					if again, err = t.differs(s.Config, sub); err != nil {
						return ended, err
					}
				}
				switch {
				case again:
					t.infof("%s learned nothing: starting it over with other settings", p.Name)
					how.Resume, how.Fresh = false, true
				case int64(s.Config.Training.MaxSteps) > before.UpdatesPlanned:
					t.infof("%s: %s done, continuing to %d", p.Name, size.Of(before.Updates, "update"), s.Config.Training.MaxSteps)
				default:
					t.infof("%s: done", p.Name)
					if err := t.trackDone(s, sub); err != nil {
						t.warnf("metrics.mlflow: %s: %v", p.Name, err)
					}
					ended = append(ended, PhaseSummary{p.Name, before})
					continue
				}
			}
		}
		if err := alive(dir, p.From); err != nil {
			return ended, fmt.Errorf("%s starts from %w", p.Name, err)
		}
		if p.Ready != nil {
			if err := p.Ready(); err != nil {
				return ended, fmt.Errorf("%s is not ready: %w", p.Name, err)
			}
		}
		if first {
			first, how.phasesLater = false, phases[i+1:]
		}
		t.emit(PhaseBegins{i + 1, len(phases), p.Name, p.Title})
		summary, err := how.one(s, sub, p.Name, began)
		if summary != nil {
			ended = append(ended, PhaseSummary{p.Name, summary})
		}
		if err != nil {
			return ended, err
		}
	}
	return ended, nil
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

// differs reports whether c differs from what the run in dir was trained with.
func (t *training) differs(c *config.Config, dir string) (bool, error) {
	old, err := t.recorded(dir)
	if err != nil {
		return false, fmt.Errorf("the configuration of %s: %w", dir, err)
	}
	what := []string{"model", "training", "data", "phases"}
	return old.Hash(what...) != c.Hash(what...), nil
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
