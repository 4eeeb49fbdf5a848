package cli

import (
	"encoding/json"
	"fmt"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
	"github.com/snug-ml/snug/session"
)

type configCmd struct {
	choice
	Presets   bool   `help:"List the presets." xor:"what"`
	Reference string `help:"Print every key of a system with its type, default and meaning." xor:"what" placeholder:"SYSTEM"`
	Schema    string `help:"Print the JSON schema of a system's configuration, for editors." xor:"what" placeholder:"SYSTEM"`
}

// Help implements kong.HelpProvider.
func (configCmd) Help() string {
	return `Without a flag: the effective configuration as YAML, every value with its source.
The output is itself a file for --config.

Examples:
  snug config quickstart --training.max_steps 50 > mine.yaml
  snug config --presets
  snug config --reference refocused`
}

// Run implements the command.
func (c *configCmd) Run(a *app) error {
	if a.asJSON && c.Reference != "" {
		c.Reference, c.Schema = "", c.Reference // the same keys, as JSON
	}
	if list := c.Presets || c.Reference != "" || c.Schema != ""; list && (c.Preset != "" || c.Config != "" || len(a.overrides) > 0) {
		return usage("--presets, --reference and --schema take no preset, --config or settings")
	}
	switch {
	case c.Presets:
		list, err := config.ListPresets(configs.FS)
		if err != nil {
			return err
		}
		if a.asJSON {
			type preset struct {
				Name string `json:"name"`
				Help string `json:"help"`
			}
			var all []preset
			for _, p := range list {
				all = append(all, preset(p))
			}
			return a.json(all)
		}
		rows := [][]string{{"PRESET", ""}}
		for _, p := range list {
			rows = append(rows, []string{p.Name, p.Help})
		}
		return a.table(rows)
	case c.Reference != "":
		s, err := systemNamed(c.Reference)
		if err != nil {
			return err
		}
		a.printf("%s", config.Reference(s))
		return nil
	case c.Schema != "":
		s, err := systemNamed(c.Schema)
		if err != nil {
			return err
		}
		raw, err := config.JSONSchema(s)
		if err != nil {
			return err
		}
		return a.json(json.RawMessage(raw))
	}
	s, err := a.load(c.choice, nil, false)
	if err != nil {
		return err
	}
	if a.asJSON {
		type value struct {
			Key    string `json:"key"`
			Value  string `json:"value"`
			Origin string `json:"origin"`
		}
		var all []value
		for _, v := range s.Config.Values() {
			all = append(all, value{v.Key, v.Text, v.Origin.String()})
		}
		return a.json(all)
	}
	return s.Config.WriteYAML(a.out)
}

func systemNamed(name string) (config.System, error) {
	names := ""
	for _, s := range session.Systems {
		if s.Config.Name == name {
			return s.Config, nil
		}
		names += " " + s.Config.Name
	}
	return config.System{}, usageError{Err: fmt.Errorf("no such system %q; the systems are:%s", name, names)}
}
