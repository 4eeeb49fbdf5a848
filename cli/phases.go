package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
)

// chosen is the setting that --phase stands for.
func (t *trainCmd) chosen() []config.Override {
	if t.Phase == "" {
		return nil
	}
	return []config.Override{{Key: "phases.run", Text: t.Phase}}
}

// phases trains one phase after the other, each in its folder below dir. A
// resumed run passes over those that are done.
func (t *trainCmd) phases(a *app, c *config.Config, phases []system.Phase, dir string) error {
	var yaml bytes.Buffer
	if err := c.WriteYAML(&yaml); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := durable.Replace(filepath.Join(dir, checkpoint.ConfigFile), yaml.Bytes()); err != nil {
		return err
	}
	for i, p := range phases {
		sub := filepath.Join(dir, p.Name)
		if t.Resume {
			done, err := finished(sub)
			if err != nil {
				return err
			}
			if done {
				a.printf("%s: done\n", p.Name)
				continue
			}
		}
		if p.Ready != nil {
			if err := p.Ready(); err != nil {
				return fmt.Errorf("%s is not ready: %w", p.Name, err)
			}
		}
		a.printf("\n[%d/%d] %s: %s\n", i+1, len(phases), p.Name, p.Title)
		s, err := a.load(t.choice, overridden(t.chosen(), p.Settings), true)
		if err != nil {
			return err
		}
		if err := t.one(a, s, sub); err != nil {
			return err
		}
	}
	return nil
}

// finished reports whether the run in dir has ended.
func finished(dir string) (bool, error) {
	raw, err := os.ReadFile(filepath.Join(dir, summaryFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	var s Summary
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", filepath.Join(dir, summaryFile), err)
	}
	return s.Done, nil
}

// lastPhase is, of the directory of a run in phases, the folder of the last
// one that has checkpoints; any other path is given back.
func lastPhase(path string) string {
	if _, err := os.Stat(filepath.Join(path, checkpoint.Folder)); err == nil {
		return path
	}
	// The pattern is good, so there is no error; phases sort by their names.
	found, _ := filepath.Glob(filepath.Join(path, "phase*", checkpoint.Folder))
	if len(found) == 0 {
		return path
	}
	return filepath.Dir(slices.Max(found))
}
