package cloudbase

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/system"
)

// TestChangedFlightsAreRefused: a resume on other flights is rejected before anything is stored. The same
// flights in a newer file are accepted.
func TestChangedFlightsAreRefused(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	floats := make([]float32, 6*8*16)
	for i := range floats {
		floats[i] = float32(i*7%256) / 255
	}
	file := filepath.Join(dir, "one.npz")
	writeNPZ(t, file, floats, columns())
	writeNPZ(t, filepath.Join(dir, "two.npz"), floats, columns())
	c := configure(t, "data.source", dir, "split.validation", "two")
	m, err := System.Describe(c)
	if err != nil {
		t.Fatal(err)
	}
	try := func(position json.RawMessage) (json.RawMessage, error) {
		run, err := open(context.Background(), c, m, system.Env{Cache: cache, Position: position, Log: t.Logf})
		if err != nil {
			return nil, err
		}
		if _, err := run.Loader.Next(); err != nil {
			t.Fatal(err)
		}
		if err := run.Close(); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(run.Loader.Position())
		if err != nil {
			t.Fatal(err)
		}
		return raw, nil
	}
	stores := func() []string {
		list, err := os.ReadDir(cache)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range list {
			names = append(names, e.Name())
		}
		return names
	}
	position, err := try(nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := stores(); len(n) != 1 || !strings.HasPrefix(n[0], "frames-") {
		t.Fatalf("stored in %v", n)
	}
	floats[0] += 0.5
	writeNPZ(t, file, floats, columns())
	_, err = try(position)
	refused(t, "other pixels", err, "the prepared data stays as it was", "the flights have changed")
	writeNPZ(t, filepath.Join(dir, "three.npz"), floats, columns())
	_, err = try(position)
	refused(t, "another flight", err, "the prepared data stays as it was", "windows=")
	if err := os.Remove(filepath.Join(dir, "three.npz")); err != nil {
		t.Fatal(err)
	}
	if n := stores(); len(n) != 1 {
		t.Errorf("refused flights are stored in %v", n)
	}
	floats[0] -= 0.5
	writeNPZ(t, file, floats, columns())
	if _, err := try(position); err != nil {
		t.Errorf("the same flights in a newer file: %v", err)
	}
	if _, err := try(json.RawMessage(`{"examples": 2, "order": "windows=4 shuffle=true seed=42"}`)); err != nil && !strings.Contains(err.Error(), "windows=") {
		t.Errorf("a position of an older checkpoint: %v", err)
	}
}
