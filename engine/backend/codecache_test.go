package backend

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
)

// What the driver is given follows from the environment: a folder of snug's with room for
// many programs where the user says nothing, and nothing against what the user says. A folder
// that cannot be used costs a line, not the run.
func TestCodeCache(t *testing.T) {
	cache := t.TempDir()
	kernels := filepath.Join(cache, "snug", "kernels")
	file := filepath.Join(t.TempDir(), "file")
	own := filepath.Join(t.TempDir(), "own", "folder")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const gib = "1073741824"
	for name, c := range map[string]struct {
		env    map[string]string
		want   map[string]string
		folder string
		note   string
	}{
		"nothing":         {nil, map[string]string{driver.CachePath: kernels, driver.CacheSize: gib}, kernels, ""},
		"own folder":      {map[string]string{driver.CachePath: own}, map[string]string{driver.CacheSize: gib}, own, ""},
		"own size":        {map[string]string{driver.CacheSize: "1000"}, map[string]string{driver.CachePath: kernels}, kernels, ""},
		"both own":        {map[string]string{driver.CachePath: own, driver.CacheSize: "1000"}, nil, own, ""},
		"disabled":        {map[string]string{driver.CacheDisable: "1"}, nil, "", ""},
		"not disabled":    {map[string]string{driver.CacheDisable: "0"}, map[string]string{driver.CachePath: kernels, driver.CacheSize: gib}, kernels, ""},
		"file for folder": {map[string]string{"XDG_CACHE_HOME": file}, nil, "", filepath.Join(file, "snug", "kernels") + " cannot be written: not a directory: assembled kernels are kept where the driver keeps those of all programs"},
		"own is a file":   {map[string]string{driver.CachePath: file}, nil, "", file + " cannot be written: not a directory (CUDA_CACHE_PATH in the environment): the driver keeps no code"},
		"no home":         {map[string]string{"XDG_CACHE_HOME": "", "HOME": ""}, nil, "", "no folder for caches is known"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{driver.CachePath, driver.CacheSize, driver.CacheDisable} {
				t.Setenv(v, "") // which restores it
				if err := os.Unsetenv(v); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("XDG_CACHE_HOME", cache)
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			d := &seeing{Driver: &fakegpu.Driver{Installed: []driver.Card{fakegpu.T4}}}
			t.Cleanup(UseDriver(d))
			var notes []string
			b, err := Open(Options{Device: "cuda", Note: func(text string) { notes = append(notes, text) }})
			if err != nil {
				t.Fatal(err)
			}
			if card, _, err := CardOf(b); card == nil || err != nil {
				t.Error(err)
			}
			if !maps.Equal(d.variables, c.want) {
				t.Errorf("the driver sees %v, want %v", d.variables, c.want)
			}
			if c.note == "" && len(notes) > 0 || c.note != "" && (len(notes) != 1 || !strings.HasPrefix(notes[0], c.note)) {
				t.Errorf("said %q, want once %q", notes, c.note)
			}
			if found := FindCodeCache(); found.Folder != c.folder || c.folder == "" && found.Problem == "" {
				t.Errorf("found %+v, want %q", found, c.folder)
			}
		})
	}
}

// A machine without a driver gets no folder.
func TestCodeCacheWithoutDriver(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	if _, err := Cards(); err == nil {
		t.Skip("a driver is installed")
	}
	if list, err := os.ReadDir(cache); err != nil || len(list) > 0 {
		t.Errorf("made %v, %v", list, err)
	}
}

// seeing is a driver that shows the variables it was given.
type seeing struct {
	*fakegpu.Driver
	variables map[string]string
}

func (s *seeing) Setenv(variables map[string]string) {
	s.variables = variables
	s.Driver.Setenv(variables)
}
