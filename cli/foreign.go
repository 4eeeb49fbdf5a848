package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
	"github.com/snug-ml/snug/session"
)

// foreignConfigs maps configurations that the five guides name to presets.
var foreignConfigs = map[string]string{
	"base_config":          "agiformer-base-t4",
	"t4_optimized_config":  "agiformer-ultra-t4",
	"test":                 "refocused-test",
	"production":           "refocused-production",
	"colab_optimized_full": "cloudbase-guide",
	"colab_optimized":      "cloudbase-memory-optimised",
}

// foreignFlags explains flags of other programs that are not settings here.
var foreignFlags = map[string]string{
	"debug":        "`snug plan` shows every byte of a run, `snug bench --ops` where its time goes",
	"monitor_only": "`snug monitor --only` watches the machine without a run",
}

// foreign translates a command line written for another program, if the command reads all settings. It
// replaces a configuration by the preset for it, and moves settings without a dot to a.overrides.
func (a *app) foreign(model *kong.Node, args []string) []string {
	at := slices.IndexFunc(model.Children, func(n *kong.Node) bool { return n.Tag.Get(tagSettings) == "all" && slices.Contains(args, n.Name) })
	if at < 0 {
		return args
	}
	known := map[string]bool{"--": true, "--system": true}
	for _, group := range model.Children[at].AllFlags(false) {
		for _, f := range group {
			known["--"+f.Name] = true
		}
	}
	settings, rest := config.SplitForeign(a.presetOf(args), session.Configs(), func(flag string) bool { return known[flag] })
	a.overrides = append(a.overrides, settings...)
	return rest
}

// presetOf replaces --config NAME by the preset of that name, if there is no such file and no preset is
// named.
func (a *app) presetOf(args []string) []string {
	presets, err := config.ListPresets(configs.FS)
	if err != nil {
		return args // loading will report what is wrong
	}
	named := func(x string) bool {
		return slices.ContainsFunc(presets, func(p config.PresetInfo) bool { return p.Name == x })
	}
	if slices.ContainsFunc(args, named) && !slices.Contains(args, "--config") {
		return args
	}
	for i, arg := range args {
		value, end := strings.TrimPrefix(arg, "--config="), i+1
		if arg == "--config" && i+1 < len(args) {
			value, end = args[i+1], i+2
		} else if value == arg {
			continue
		}
		if _, err := os.Stat(value); err == nil {
			return args
		}
		base := strings.TrimSuffix(filepath.Base(value), filepath.Ext(value))
		preset := foreignConfigs[strings.ToLower(base)]
		if named(base) {
			preset = base
		}
		rest := slices.Concat(args[:i], args[end:])
		if preset == "" || slices.ContainsFunc(rest, named) {
			return args
		}
		a.warning("--config %s: there is no such file; it is taken as the preset %s", value, preset)
		return append(rest, preset)
	}
	return args
}

// flagHint says which setting or command a flag without a dot may stand for.
func flagHint(name string) (string, bool) {
	if name == "--system" {
		return "the preset sets the system, or the line `system:` of the --config file", true
	}
	if hint := foreignFlags[strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_")]; hint != "" {
		return hint, true
	}
	for _, s := range session.Systems {
		if hint, ok := config.FlagHint(name, s.Config); ok {
			return hint, true
		}
	}
	return "", false
}
