package cloudbase

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
)

// configure returns a configuration of the system with the given keys and values.
func configure(t *testing.T, settings ...string) *config.Config {
	t.Helper()
	c, err := tryConfigure(settings...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tryConfigure(settings ...string) (*config.Config, error) {
	values := map[string]string{
		"system": "cloudbase", "model.height": "8", "model.width": "16", "model.frames": "3", "model.channels": "4,8",
		"model.mask_patch": "4", "data.source": syntheticSource, "data.cbh_min": "0", "synthetic.flights": "4", "synthetic.bursts": "3",
	}
	for i := 0; i < len(settings); i += 2 {
		values[settings[i]] = settings[i+1]
	}
	var all []config.Override
	for key, text := range values {
		all = append(all, config.Override{Key: key, Text: text})
	}
	return config.Load(config.Sources{Systems: []config.System{System.Config}, Overrides: all, NeedData: true})
}

// stored prepares the flights of a configuration.
func stored(t *testing.T, c *config.Config) *store {
	t.Helper()
	key, err := storeKey(c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := prepare(context.Background(), t.TempDir(), key, config.Of[Data](c).FlatField, func() ([]*flight, error) { return flights(c) }, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// all reads the images of a flight.
func (r *recording) all(t *testing.T) []float32 {
	t.Helper()
	out := make([]float32, len(r.Time)*r.Height*r.Width)
	if err := r.read(out, 0, len(r.Time), make([]byte, int64(len(r.Time))*r.bytes())); err != nil {
		t.Fatal(err)
	}
	return out
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// refused checks that err contains all of the words.
func refused(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	if i := slices.IndexFunc(words, func(w string) bool { return !strings.Contains(err.Error(), w) }); i >= 0 {
		t.Errorf("%s: %q does not say %q", what, err, words[i])
	}
}

// compile compiles the training program of a configuration.
func compile(t *testing.T, c *config.Config) *engine.Program {
	t.Helper()
	m, err := System.Describe(c)
	if err != nil {
		t.Fatal(err)
	}
	p, err := engine.CompileTraining(m.Training(m.Shape), engine.CompileOptions{Verify: true})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
