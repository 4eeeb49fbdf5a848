package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/train/checkpoint"
)

// ofRun makes a resumed run use the configuration in its directory when the
// command line names none.
func (t *trainCmd) ofRun() {
	if !t.Resume || t.Preset != "" || t.Config != "" {
		return
	}
	dir := t.Out
	if dir == "" {
		dir = filepath.Join("runs", defaultPreset)
	}
	path := filepath.Join(dir, checkpoint.ConfigFile)
	if _, err := os.Stat(path); err == nil {
		t.Config, t.Out = path, dir
	}
}

// sameRun holds the configuration against the one that the run in its
// directory was made with. What the model is cannot change; other changes are
// told, because the run is then not the one it would have been.
func (r *run) sameRun() error {
	path := filepath.Join(r.dir, checkpoint.ConfigFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	old, err := config.Load(config.Sources{Systems: knownSystems(), File: path, Fetch: r.fetch(false)})
	if err != nil {
		return fmt.Errorf("the configuration of the run to resume: %w", err)
	}
	before := map[string]string{}
	for _, v := range old.Values() {
		before[v.Key] = v.Text
	}
	var fixed []string
	for _, v := range r.config.Values() {
		was := before[v.Key]
		section, _, _ := strings.Cut(v.Key, ".")
		switch {
		case was == v.Text || section == "hardware" || section == "run":
		case section == "model" || section == "system" || v.Key == "training.seed":
			fixed = append(fixed, fmt.Sprintf("%s is %s, the run has %s", v.Key, v.Text, was))
		default:
			r.printf("changed on resume: %s %s, was %s (%v)\n", v.Key, v.Text, was, v.Origin)
		}
	}
	if len(fixed) > 0 {
		return usage("cannot resume %s with another model:\n  %s\nstart a new run with another --out, or leave the configuration away: snug train --resume --out %s", r.dir, strings.Join(fixed, "\n  "), r.dir)
	}
	return nil
}
