package config

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// neoxModel is the model section of a GPT-NeoX, as a system would declare it.
type neoxModel struct {
	DModel           int     `key:"d_model" min:"1" help:"width of the residual stream"`
	NLayers          int     `key:"n_layers" min:"1" help:"blocks"`
	NHeads           int     `key:"n_heads" min:"1" help:"attention heads"`
	DFF              int     `key:"d_ff" min:"1" help:"width of the feed-forward layer"`
	VocabSize        int     `key:"vocab_size" min:"2" help:"tokens"`
	MaxSeqLen        int     `key:"max_seq_len" min:"1" help:"positions"`
	RotaryPct        float64 `key:"rotary_pct" min:"0" max:"1" help:"share of a head that is rotated"`
	RotaryBase       float64 `key:"rotary_base" above:"0" help:"base of the angles"`
	ParallelResidual bool    `key:"parallel_residual" help:"attention and feed-forward read the same input"`
	Activation       string  `key:"activation" enum:"gelu,gelu_tanh" help:"of the feed-forward layer"`
	Dropout          float64 `key:"dropout" min:"0" below:"1" help:"share of activations dropped"`
	LayerNormEps     float64 `key:"layer_norm_eps" above:"0" help:"added to the variance"`
	TieEmbeddings    bool    `key:"tie_embeddings" help:"output matrix = embedding"`
	InitStd          float64 `key:"init_std" above:"0" help:"of the weights at the start"`
}

// otherModel has what neoxModel lacks: lists, lists of structs, own keys in a common section, nesting.
type otherModel struct {
	Widths  []int    `key:"widths" min:"1" help:"of the layers"`
	Experts []string `key:"experts" enum:"language,logic,spatial,causal" help:"kinds of expert"`
	LoRA    lora     `key:"lora" help:"adapters"`
	Flights []flight `key:"flights" help:"recordings"`
	Scale   float32  `key:"scale" help:"a small float"`
}

type lora struct {
	Rank  int     `key:"rank" min:"1" help:"of the update"`
	Alpha float64 `key:"alpha" help:"scale"`
}

type flight struct {
	Name   string  `key:"name" help:"of the flight"`
	Weight float64 `key:"weight" min:"0" help:"in the sampler"`
}

type otherData struct {
	Rows  []int `key:"rows" min:"0" help:"cut from the frames"`
	Cache Bytes `key:"cache" help:"most memory for frames"`
}

type otherPhases struct {
	Only int `key:"only" min:"0" max:"3" help:"phase to run"`
}

func testSystems() []System {
	return []System{
		{
			Name: "neox", Help: "a causal language model",
			Sections: func() []Section {
				return []Section{{"model", &neoxModel{
					DModel: 256, NLayers: 4, NHeads: 4, DFF: 1024, VocabSize: 8192, MaxSeqLen: 256, RotaryPct: 0.25, RotaryBase: 10000,
					ParallelResidual: true, Activation: "gelu", LayerNormEps: 1e-5, InitStd: 0.02,
				}}}
			},
			Check: func(c *Config, r *Report) {
				if m := Of[neoxModel](c); m.DModel%m.NHeads != 0 {
					r.Error("model.d_model", "want a multiple of model.n_heads (%d), got %d", m.NHeads, m.DModel)
				}
			},
		},
		{
			Name: "other", Help: "everything else",
			Sections: func() []Section {
				return []Section{
					{"model", &otherModel{Widths: []int{64, 128}, LoRA: lora{Rank: 8, Alpha: 16}, Flights: []flight{{"10Feb25", 3.5}}}},
					{"data", &otherData{Rows: []int{40, 480}}},
					{"phases", &otherPhases{}},
				}
			},
		},
	}
}

var testPresets = fstest.MapFS{
	"small.yaml": {Data: []byte("# A small model.\n# For tests.\nsystem: neox\nmodel:\n  d_model: 128\ntraining:\n  learning_rate: 1e-3\n  batch_size: 4\ndata:\n  source: [corpus/*.txt]\n")},
	"wide.yaml":  {Data: []byte("# Another system.\nsystem: other\ndata:\n  source: flights\n")},
	"bad.yaml":   {Data: []byte("system: neox\nmodel:\n  d_modle: 128\n")},
}

// load loads a preset, a file with the given text, and flags.
func load(t testing.TB, preset, text string, args ...string) (*Config, error) {
	t.Helper()
	s := Sources{Systems: testSystems(), Presets: testPresets, Preset: preset, NeedData: true}
	if text != "" {
		t.Chdir(t.TempDir())
		s.File = "run.yaml"
		if err := os.WriteFile(s.File, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var rest []string
	s.Overrides, rest = SplitFlags(args)
	if len(rest) > 0 {
		t.Fatalf("flags not understood: %q", rest)
	}
	return Load(s)
}

func mustLoad(t testing.TB, preset, text string, args ...string) *Config {
	t.Helper()
	c, err := load(t, preset, text, args...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// reload dumps a configuration and loads it again.
func reload(t testing.TB, c *Config) *Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WriteYAML(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Load(Sources{Systems: testSystems(), File: path})
	if err != nil {
		text, _ := os.ReadFile(path)
		t.Fatalf("does not load back: %v\n%s", err, text)
	}
	return again
}
