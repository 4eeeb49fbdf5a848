package config

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestFilesThatGrow: small YAML files that would expand to a large size, or endlessly, are rejected or cost
// little.
func TestFilesThatGrow(t *testing.T) {
	laughs := "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n"
	for i := range 30 {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), ", "))
	}
	for name, text := range map[string]string{
		"laughs":       laughs + "data: {source: *a30}\n",
		"laughing map": laughs + "data: *a30\n",
		"itself":       "data: &d {source: &s [*s], cache_dir: *d}\n",
		"own section":  "model: &m {d_model: *m}\n",
		"merged":       "model: &m {<<: *m}\n",
		"deep":         "data: {source: " + strings.Repeat("[", 500_000) + "}\n",
		"deep map":     "data: " + strings.Repeat("{a: ", 100_000) + "\n",
		"deep key":     strings.Repeat("? ", 400_000) + "\n",
		"deep list":    strings.Repeat("- ", 400_000) + "\n",
	} {
		path := filepath.Join(t.TempDir(), "x.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Load(Sources{Systems: testSystems(), File: path})
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<30 {
			t.Errorf("%s: %d MiB are allocated for %d bytes", name, took>>20, len(text))
		}
		if len(err.Error()) > 10_000 {
			t.Errorf("%s: a message of %d bytes: %.300s", name, len(err.Error()), err)
		}
	}
}
