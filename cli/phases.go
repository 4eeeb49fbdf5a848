package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
	"github.com/snug-ml/snug/train/rundir"
)

// chosen is the setting that --phase stands for.
func (t *trainCmd) chosen() []config.Override {
	if t.Phase == "" {
		return nil
	}
	return []config.Override{{Key: "phases.run", Text: t.Phase, Flag: "--phase"}}
}

// phases trains one phase after the other, each in its folder below dir. A
// resumed run passes over those that are done, but for two kinds: what is to be
// trained for longer now goes on, and what learned nothing is started over where
// its settings are others now.
func (t *trainCmd) phases(a *app, c *config.Config, phases []system.Phase, dir string) (ended []phaseSummary, err error) {
	var yaml bytes.Buffer
	if err := c.WriteYAML(&yaml); err != nil {
		return nil, err
	}
	if t.Resume || t.Phase != "" {
		all, err := a.changes(dir, c)
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
	began := sync.OnceValue(func() error { return whole.Replace(checkpoint.ConfigFile, yaml.Bytes()) })
	for i, p := range phases {
		if err := whole.Check(); err != nil {
			return ended, err
		}
		sub, how := whole.Join(p.Name), *t
		s, err := a.load(t.choice, overridden(t.chosen(), p.Settings), true)
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
				if before.dead() {
					if again, err = a.changed(s.config, sub); err != nil {
						return ended, err
					}
				}
				switch {
				case again:
					a.printf("%s learned nothing: it is started over with other settings\n", p.Name)
					how.Resume, how.Fresh = false, true
				case int64(s.config.Training.MaxSteps) > before.UpdatesPlanned:
					a.printf("%s: %d updates are done, it goes on to %d\n", p.Name, before.Updates, s.config.Training.MaxSteps)
				default:
					a.printf("%s: done\n", p.Name)
					ended = append(ended, phaseSummary{p.Name, before})
					continue
				}
			}
		}
		if err := alive(dir, p.From); err != nil {
			return ended, fmt.Errorf("%s would start from %w", p.Name, err)
		}
		if p.Ready != nil {
			if err := p.Ready(); err != nil {
				return ended, fmt.Errorf("%s is not ready: %w", p.Name, err)
			}
		}
		a.printf("\n[%d/%d] %s: %s\n", i+1, len(phases), p.Name, p.Title)
		summary, err := how.one(a, s, sub, p.Name, began)
		if summary != nil {
			ended = append(ended, phaseSummary{p.Name, summary})
		}
		if err != nil {
			return ended, err
		}
	}
	return ended, nil
}

// alive is an error where the phase of a name, below dir, has learned nothing.
func alive(dir, name string) error {
	if name == "" {
		return nil
	}
	s, err := readSummary(filepath.Join(dir, name))
	if err != nil || s == nil || !s.dead() {
		return err
	}
	return fmt.Errorf("%s, which has learned nothing: %v\nall that was trained is kept; start %s over with other settings: snug train --resume --out %s --phase all, and the setting that helps as a flag", name, s.Trouble, name, dir)
}

// changed reports whether c wants something else than the run in dir was
// trained with.
func (a *app) changed(c *config.Config, dir string) (bool, error) {
	old, err := config.Load(config.Sources{Systems: knownSystems(), File: filepath.Join(dir, checkpoint.ConfigFile), Fetch: a.fetch(false)})
	if err != nil {
		return false, fmt.Errorf("the configuration of %s: %w", dir, err)
	}
	what := []string{"model", "training", "data", "phases"}
	return old.Hash(what...) != c.Hash(what...), nil
}

// phaseSummary is how a phase ended.
type phaseSummary struct {
	Phase string `json:"phase"`
	*Summary
}

// readSummary reads the summary of the run in dir, nil if it has none.
func readSummary(dir string) (*Summary, error) {
	raw, err := regular.Read(filepath.Join(dir, summaryFile), regular.Text)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var s Summary
	if err == nil {
		err = strictjson.Unmarshal(raw, &s)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, summaryFile), err)
	}
	return &s, nil
}
