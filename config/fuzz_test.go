package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// FuzzLoad: whatever the file and the flags contain, loading ends with a configuration that obeys every tag
// and loads back from its dump, or with an error that has a message.
func FuzzLoad(f *testing.F) {
	f.Add("", "")
	f.Add("system: neox\ndata: {source: x}\n", "--model.d_model 64")
	f.Add("system: other\nmodel:\n  widths: [1, 2]\n  flights: [{name: x, weight: 1.5}]\n", "--model.experts=[logic, causal]")
	f.Add("a: &a [*a]\nmodel: *a\ndata: {source: *a}\n", "--model.lora.rank")
	f.Add("training: {learning_rate: 1e-400, max_steps: 1e300, seed: -1}\n", "--training.max_grad_norm nan")
	f.Add("? {a: b}\n: c\n!!binary x: y\n", "--.=")
	f.Add("system: [x]\nrun: {out: \"\\x7f\\u2028 # : {\"}\n", "--run.out=\xff")
	f.Add("data: {cache: 9e18TiB, tokenizer: {vocab_size: 0x200}}\ncheckpoint: {grace: -5s}\n", "--system.x 1")
	f.Fuzz(func(t *testing.T, text, flags string) {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overrides, _ := SplitFlags(strings.Fields(flags))
		for _, preset := range []string{"", "small", "wide"} {
			c, err := Load(Sources{Systems: testSystems(), Presets: testPresets, Preset: preset, File: path, Overrides: overrides})
			if err != nil {
				if strings.TrimSpace(err.Error()) == "" {
					t.Fatal("an empty error")
				}
				continue
			}
			if again := reload(t, c); again.Hash() != c.Hash() {
				t.Fatalf("loads back as something else:\n%v\n%v", c.Values(), again.Values())
			}
		}
	})
}

// draw returns a random valid value for a key.
func draw(t *rapid.T, k *key) {
	v := k.value
	switch {
	case len(k.rule.enum) > 0 && v.Kind() == reflect.String:
		v.SetString(rapid.SampledFrom(k.rule.enum).Draw(t, k.path))
	case k.path == "hardware.device":
		v.SetString(rapid.SampledFrom([]string{"auto", "cpu", "cuda", "cuda:3"}).Draw(t, k.path))
	case v.Kind() == reflect.String:
		v.SetString(rapid.String().Draw(t, k.path))
	case v.Kind() == reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, k.path))
	case v.CanInt():
		x := rapid.Int64Range(0, 1<<40).Draw(t, k.path)
		if !v.OverflowInt(x) && k.rule.allows(float64(x)) && k.rule.excess(strconv.FormatInt(x, 10), v.Type()) == "" {
			v.SetInt(x)
		}
	case v.CanFloat():
		if x := rapid.Float64Range(0, 2).Draw(t, k.path); k.rule.allows(x) && Unheld(x) == "" {
			v.SetFloat(x)
		}
	case v.Type() == reflect.TypeFor[[]string]() && len(k.rule.enum) == 0:
		v.Set(reflect.ValueOf(rapid.SliceOfN(rapid.String(), 1, 4).Draw(t, k.path)))
	case v.Type() == reflect.TypeFor[[]flight]():
		v.Set(reflect.ValueOf(rapid.SliceOf(rapid.Custom(func(t *rapid.T) flight {
			return flight{rapid.String().Draw(t, "name"), rapid.Float64Range(1e-3, mostFloat).Draw(t, "weight")}
		})).Draw(t, k.path)))
	}
}

// TestRoundTrip: any configuration of valid values loads back unchanged from its dump.
func TestRoundTrip(t *testing.T) {
	systems := testSystems()
	rapid.Check(t, func(t *rapid.T) {
		system := rapid.SampledFrom(systems).Draw(t, "system")
		c := newConfig(system)
		for _, k := range c.keys {
			draw(t, k)
		}
		var b strings.Builder
		if err := c.WriteYAML(&b); err != nil {
			t.Fatal(err)
		}
		// Without rules between keys, which random values break.
		var ps problems
		l, ok := parseLayer([]byte(b.String()), Origin{Kind: File, Name: "dump"}, &ps)
		again := newConfig(system)
		if ok {
			again.applyMapping(l.root, "", l.origin, explainer{config: again}, &ps)
		}
		if err := ps.err(); err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		if again.Hash() != c.Hash() {
			t.Fatalf("loads back as something else:\n%v\n%v", c.Values(), again.Values())
		}
	})
}
