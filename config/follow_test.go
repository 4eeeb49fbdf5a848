package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestFollow checks what a file decides: defaults follow silently, an earlier layer is replaced with a
// warning, and the same layer and later ones must agree. Rules between keys are checked with the values of
// the file.
func TestFollow(t *testing.T) {
	type model struct {
		Folder    string  `key:"folder" help:"-"`
		Width     int     `key:"width" min:"1" help:"-"`
		Eps       float64 `key:"eps" help:"-"`
		MaxSeqLen int     `key:"max_seq_len" help:"-"`
	}
	system := System{
		Name:     "one",
		Sections: func() []Section { return []Section{{"model", &model{Width: 8, Eps: 1e-5, MaxSeqLen: 16}}} },
		Resolve: func(c *Config, r *Report) {
			if Of[model](c).Folder != "" {
				r.Follow("model.folder", "config.json", []Fact{{"model.width", 64}, {"model.eps", 1e-5}, {"model.max_seq_len", 128}})
			}
		},
	}
	presets := fstest.MapFS{"p.yaml": {Data: []byte("system: one\nmodel: {width: 32}\ntraining: {warmup_steps: 0}\n")}}
	for _, test := range []struct {
		preset string
		flags  []string
		width  string
		told   string // part of a warning
		err    string
	}{
		{preset: "", flags: nil, width: "8"},
		{preset: "", flags: []string{"model.folder", "x"}, width: "64"},
		{preset: "p", flags: nil, width: "32"},
		{preset: "p", flags: []string{"model.folder", "x"}, width: "64", told: "model.width is 64, not 32 (preset p:2)"},
		{preset: "p", flags: []string{"model.folder", "x", "model.width", "64", "model.eps", "0.00001"}, width: "64"},
		{preset: "p", flags: []string{"model.folder", "x", "model.width", "48"}, err: "--model.width: config.json of model.folder has 64, got 48"},
		{preset: "", flags: []string{"model.folder", "x", "data.seq_len", "100"}, width: "64"},
		{preset: "", flags: []string{"model.folder", "x", "data.seq_len", "200"}, err: "want at most model.max_seq_len (128)"},
	} {
		s := Sources{Systems: []System{system}, Presets: presets, Preset: test.preset}
		for pair := range slices.Chunk(test.flags, 2) {
			s.Overrides = append(s.Overrides, Override{Key: pair[0], Text: pair[1]})
		}
		c, err := Load(s)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%v: error %v, want one with %q", test.flags, err, test.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", test.flags, err)
			continue
		}
		if got := fmt.Sprint(Of[model](c).Width); got != test.width {
			t.Errorf("preset %q %v: width %s, want %s", test.preset, test.flags, got, test.width)
		}
		told := fmt.Sprint(c.Warnings)
		if test.told == "" && len(c.Warnings) > 0 || !strings.Contains(told, test.told) {
			t.Errorf("preset %q %v: warnings %s, want %q", test.preset, test.flags, told, test.told)
		}
	}
}
