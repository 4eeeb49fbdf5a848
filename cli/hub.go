package cli

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/hub"
	"github.com/snug-ml/snug/nn/hf"
)

// fetch returns a function that fetches what hf:// addresses in a configuration refer to: for a list, the
// data files; for a single value, one file, or a folder with the files of a model. Addresses below "data."
// are fetched only if data is set.
func (a *app) fetch(data bool) config.Fetch {
	return func(key, value string, list bool) ([]string, bool, error) {
		if !strings.HasPrefix(value, hub.Scheme) || strings.HasPrefix(key, "data.") && !data {
			return nil, false, nil
		}
		ref, err := hub.ParseURL(value)
		if err != nil {
			return nil, false, err
		}
		client, err := hub.FromEnv(os.Getenv)
		if err != nil {
			return nil, false, err
		}
		client.Log = func(format string, args ...any) { _, _ = fmt.Fprintf(a.err, format+"\n", args...) } // only logged
		wanted := func(name string) bool { return name == ref.Path || hf.IsFolderFile(path.Base(name)) }
		if list {
			wanted = func(name string) bool { return name == ref.Path || holdsData(name) }
		}
		s, err := client.Fetch(a.ctx, ref, hub.Options{Only: wanted})
		if err == nil && !list && !slices.ContainsFunc(s.Files, holdsWeights) {
			// Older repositories only have files written by torch.save.
			s, err = client.Fetch(a.ctx, ref, hub.Options{Only: func(name string) bool { return wanted(name) || hf.IsTorchFile(path.Base(name)) }})
		}
		switch {
		case err != nil:
			return nil, false, err
		case list:
			return s.Paths(), true, nil
		}
		return []string{filepath.Join(s.Dir, filepath.FromSlash(ref.Path))}, true, nil
	}
}

// holdsWeights reports whether a file of a repository is a safetensors file.
func holdsWeights(name string) bool { return path.Ext(name) == ".safetensors" }

// holdsData reports, by name, whether a file of a repository contains data.
func holdsData(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(name), ".gz"), ".zst")
	switch path.Ext(name) {
	case ".txt", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".npz":
		return true
	}
	return false
}
