package cli

import (
	"slices"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train"
)

// choice is how a command names a configuration.
type choice struct {
	Preset string `arg:"" optional:"" help:"Preset to start from (default: quickstart, unless --config is given)."`
	Config string `help:"YAML file with settings." placeholder:"FILE" type:"existingfile"`
}

// sources returns the sources of a configuration, with the settings that were given as flags.
func (a *app) sources(c choice) config.Sources {
	return config.Sources{Preset: c.Preset, File: c.Config, Overrides: a.overrides, Fetch: a.fetch(true)}
}

// load resolves a configuration with extra settings. needData fetches the data that it names.
func (a *app) load(c choice, extra []config.Override, needData bool) (*session.Setup, error) {
	from, err := session.Respelled(a.sources(c), a.onEvent)
	if err != nil {
		return nil, err
	}
	from.Overrides, from.NeedData, from.Fetch = session.Overridden(from.Overrides, extra), needData, a.fetch(needData)
	return session.Load(a.ctx, from, a.onEvent)
}

// loadElsewhere is load for plans for other chips than this machine's.
func (a *app) loadElsewhere(c choice, processes, machines int) (*session.Setup, error) {
	from := a.sources(c)
	from.Fetch = a.fetch(false)
	return session.LoadElsewhere(a.ctx, from, processes, machines, a.onEvent)
}

// loadShared is load for one of several processes.
func (a *app) loadShared(c choice, perMachine, machines int) (*session.Setup, error) {
	from := a.sources(c)
	from.Fetch = a.fetch(false)
	return session.LoadShared(a.ctx, from, perMachine, machines, a.onEvent)
}

// onEvent prints an event of a command that does not train. A message about a configuration is printed once,
// even though every phase of a run loads it again.
func (a *app) onEvent(e session.Event) {
	switch e := e.(type) {
	case session.Info:
		a.warnf("%s\n", e.Text)
	case train.Warned:
		if e.Update == 0 && slices.Contains(a.warned, e.Text) {
			return
		}
		a.warned = append(a.warned, e.Text)
		a.warning("%s", e.Text)
	}
}
