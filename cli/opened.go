package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train/checkpoint"
)

// pick is how a command that uses a model names its checkpoint.
type pick struct {
	Path       string `arg:"" name:"run" help:"Run directory (its best checkpoint is used) or a checkpoint folder."`
	Checkpoint string `help:"Checkpoint of the run to use instead: best, last, step-N or a checkpoint folder." placeholder:"WHICH"`
}

// state is how a command names a checkpoint to inspect, copy, compare or continue from; by default, the last
// one.
type state struct {
	Path       string `arg:"" name:"run" help:"Run directory (its last checkpoint is used) or a checkpoint folder."`
	Checkpoint string `help:"Checkpoint of the run to use instead: best, last, step-N or a checkpoint folder." placeholder:"WHICH"`
}

// stateOf chooses that checkpoint: the named one, or the last that looks intact. It does not read its
// contents.
func (a *app) stateOf(s state) (*checkpoint.Chosen, error) {
	if s.Checkpoint != "" {
		return a.choose(s.Path, s.Checkpoint)
	}
	if m, err := checkpoint.ReadManifest(s.Path); err == nil {
		return &checkpoint.Chosen{Path: s.Path, Update: m.Update, Why: "as named"}, nil
	}
	dir, err := a.runWithModel(s.Path)
	if err != nil {
		return nil, err
	}
	list, err := checkpoint.List(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if e.Problem == nil {
			return &checkpoint.Chosen{Path: e.Path, Update: e.Update, Why: "the last"}, nil
		}
	}
	return nil, fmt.Errorf("%w in %s", checkpoint.ErrNone, dir)
}

// opened is a checkpoint with the configuration that it was made with.
type opened struct {
	*checkpoint.Chosen
	config *config.Config
	system system.System
}

// typed reports whether a setting was given on the command line.
func (o *opened) typed(key string) bool {
	from, ok := o.config.Origin(key)
	return ok && from.Kind == config.Flag
}

// device opens the device to compute on, with asked threads or, if that is 0, the default of this process.
// The thread count of the run may come from another machine.
func (o *opened) device(a *app, asked int) (engine.Backend, error) {
	threads := asked
	if threads == 0 && o.typed("hardware.threads") {
		threads = o.config.Hardware.Threads
	}
	if threads == 0 {
		threads = device.DetectHost().CPU.Threads
	}
	return backend.Open(backend.Options{Device: "auto", Threads: threads, NoCublas: o.config.Hardware.Cublas == "off", Chosen: func(why string) { a.warnf("%s\n", why) }, Note: func(text string) { a.warning("%s", text) }})
}

// open opens the checkpoint to use.
func (a *app) open(p pick) (*opened, error) { return a.openFor(p, false) }

// openFor is open, and with data set also fetches the run's data.
func (a *app) openFor(p pick, data bool) (*opened, error) {
	c, err := a.choose(p.Path, p.Checkpoint)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.Sources{
		Systems: session.Configs(), File: filepath.Join(c.Path, checkpoint.ConfigFile), Overrides: a.overrides,
		Fetch: a.fetch(data),
	})
	if err != nil {
		return nil, err
	}
	o := &opened{c, cfg, session.SystemOf(cfg)}
	if o.typed(system.FolderKey) && !system.HasBase(c.Path) {
		return nil, usage("--%s: the model comes from the checkpoint; only a run with lora.targets needs the weights that its adapters belong to", system.FolderKey)
	}
	return o, nil
}

// choose finds the checkpoint that path stands for, by the rule of [checkpoint.Choose], and reports those
// that it skipped.
func (a *app) choose(path, want string) (*checkpoint.Chosen, error) {
	path, err := a.runWithModel(path)
	if err != nil {
		return nil, err
	}
	c, err := checkpoint.Choose(path, want)
	var wish *checkpoint.WantError
	if errors.As(err, &wish) {
		return nil, usage("--checkpoint %s: %s", wish.Want, wish.Problem)
	}
	if err != nil {
		return nil, err
	}
	for _, r := range c.Rejected {
		if _, err := fmt.Fprintf(a.err, "checkpoint %s is not used: %v\n", filepath.Base(r.Path), r.Err); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// runWithModel returns the folder of the phase whose model is used if path is a run in phases, and path
// itself otherwise.
func (a *app) runWithModel(path string) (string, error) {
	file := filepath.Join(path, checkpoint.ConfigFile)
	if _, err := os.Stat(file); err != nil || hasCheckpoints(path) {
		return path, nil
	}
	// The file is in a run directory, or in a checkpoint next to its weights.
	if _, err := os.Stat(filepath.Join(path, checkpoint.ManifestFile)); err == nil {
		return path, nil
	}
	cfg, err := config.Load(config.Sources{Systems: session.Configs(), File: file, Fetch: a.fetch(false)})
	if err != nil {
		return "", err
	}
	s := session.SystemOf(cfg)
	if s.PhaseFolders == nil {
		return path, nil
	}
	for _, name := range s.PhaseFolders(cfg) {
		if sub := filepath.Join(path, name); hasCheckpoints(sub) {
			return sub, nil
		}
	}
	runs, err := runsBelow(path)
	if err == nil && len(runs) > 0 {
		err = fmt.Errorf("%s contains several runs, and none is the final one: name one of %s", path, strings.Join(runs, ", "))
	}
	return path, err
}

// runsBelow returns the run directories with checkpoints in a folder.
func runsBelow(dir string) (runs []string, err error) {
	found, err := os.ReadDir(dir)
	for _, e := range found {
		if sub := filepath.Join(dir, e.Name()); hasCheckpoints(sub) {
			runs = append(runs, sub)
		}
	}
	return runs, err
}

// hasCheckpoints reports whether the run directory dir has a checkpoint.
func hasCheckpoints(dir string) bool {
	list, err := checkpoint.List(filepath.Join(dir, checkpoint.Folder))
	return err == nil && len(list) > 0
}
