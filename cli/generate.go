package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/lm"
	"github.com/snug-ml/snug/train/checkpoint"
)

type generateCmd struct {
	Path        string   `arg:"" name:"run" help:"Run directory or checkpoint folder."`
	Prompt      string   `help:"Text to continue (default: start a document)." empty:"" key:"training.sample.prompt"`
	Tokens      int      `help:"Most tokens to write." default:"200" min:"1" key:"training.sample.tokens"`
	Temperature *float64 `help:"0: always the likeliest token (default: the run's setting)." min:"0" key:"training.sample.temperature"`
	TopK        *int     `name:"top_k" help:"Draw from so many likeliest tokens; 0: from all." min:"0" key:"training.sample.top_k"`
	TopP        *float64 `name:"top_p" help:"Draw from the likeliest tokens that add up to this probability." above:"0" max:"1" key:"training.sample.top_p"`
	Seed        uint64   `help:"Of the draws." default:"42"`
	Threads     int      `help:"Worker threads (default: the cores this process may use)." min:"1" key:"hardware.threads"`
}

// Help implements kong.HelpProvider.
func (generateCmd) Help() string {
	return `Examples:
  snug generate runs/quickstart --prompt "func main"
  snug generate runs/quickstart/checkpoints/step-00000300 --temperature 0`
}

// Run implements the verb.
func (g *generateCmd) Run(a *app) error {
	o, err := a.open(g.Path)
	if err != nil {
		return err
	}
	if o.system.Generator == nil {
		return fmt.Errorf("%s is a run of the system %s, which does not write text", g.Path, o.config.System)
	}
	on, err := o.device(g.Threads)
	if err != nil {
		return err
	}
	gen, err := o.system.Generator(o.config, o.path, on)
	if err != nil {
		return err
	}
	defer func() { _ = gen.Close() }() // memory only
	s := o.config.Training.Sample
	opt := lm.Options{Tokens: g.Tokens, Temperature: s.Temperature, TopK: s.TopK, TopP: s.TopP, Seed: g.Seed}
	if g.Temperature != nil {
		opt.Temperature = *g.Temperature
	}
	if g.TopK != nil {
		opt.TopK = *g.TopK
	}
	if g.TopP != nil {
		opt.TopP = *g.TopP
	}
	began := time.Now()
	n, err := gen.Generate(a.ctx, g.Prompt, opt, a.out)
	a.printf("\n")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.err, "%d tokens, %.0f tok/s\n", n, float64(n)/time.Since(began).Seconds())
	return err
}

// opened is a checkpoint with the configuration it was made with.
type opened struct {
	path   string
	config *config.Config
	system system.System
}

// device is where to compute, with as many threads as a flag asks for (0: none
// does), else those of this process. The run's own number was another machine's.
func (o *opened) device(asked int) (engine.Backend, error) {
	threads := asked
	if from, ok := o.config.Origin("hardware.threads"); threads == 0 && ok && from.Kind == config.Flag {
		threads = o.config.Hardware.Threads
	}
	if threads == 0 {
		threads = device.DetectHost().CPU.Threads
	}
	return backend.Open(backend.Options{Device: "auto", Threads: threads})
}

// open finds the checkpoint that path means: the folder of one, or the newest
// whole one of a run directory.
func (a *app) open(path string) (*opened, error) { return a.openFor(path, false) }

// openFor is open for what needs the run's data too, or not.
func (a *app) openFor(path string, data bool) (*opened, error) {
	path = lastPhase(path)
	dir := path
	if _, err := os.Stat(filepath.Join(path, checkpoint.ManifestFile)); err != nil {
		c, rejected, err := checkpoint.Latest(path)
		for _, r := range rejected {
			if _, err := fmt.Fprintf(a.err, "checkpoint %s is not used: %v\n", filepath.Base(r.Path), r.Err); err != nil {
				return nil, err
			}
		}
		if err != nil {
			return nil, err
		}
		dir = c.Path
		if err := c.Close(); err != nil {
			return nil, err
		}
	}
	if err := checkpoint.Good(dir); err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.Sources{
		Systems: knownSystems(), File: filepath.Join(dir, checkpoint.ConfigFile), Overrides: a.overrides,
		Fetch: a.fetch(data),
	})
	if err != nil {
		return nil, err
	}
	return &opened{dir, cfg, systemOf(cfg)}, nil
}

// knownSystems are the configurations of all systems.
func knownSystems() []config.System {
	var known []config.System
	for _, s := range systems {
		known = append(known, s.Config)
	}
	return known
}

// systemOf is the system that a configuration is for.
func systemOf(c *config.Config) system.System {
	return systems[slices.IndexFunc(systems, func(x system.System) bool { return x.Config.Name == c.System })]
}
