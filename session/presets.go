package session

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/configs"
)

// PresetSettings returns the settings of a preset by key, or the defaults of a system if preset is empty; nil
// if this version has no such preset.
func PresetSettings(system, preset string) map[string]string {
	from := config.Sources{Systems: Configs(), Presets: configs.FS, Preset: preset}
	if preset == "" {
		from.Overrides = []config.Override{{Key: "system", Text: system}}
	}
	c, err := config.Load(from)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for _, v := range c.Values() {
		out[v.Key] = v.Text
	}
	return out
}
