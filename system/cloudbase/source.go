package cloudbase

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
)

// syntheticSource is the value of data.source that selects the generator.
const syntheticSource = "synthetic"

// generated reports whether the flights are computed.
func generated(c *config.Config) bool { return slices.Equal(c.Data.Source, []string{syntheticSource}) }

// sources returns the files and folders that data.source names: NPZ files, folders of them, and folders with
// an index of images.
func sources(c *config.Config) ([]string, error) {
	var out []string
	for _, pattern := range c.Data.Source {
		if pattern == syntheticSource {
			return nil, fmt.Errorf("data.source: %q must be the only source, and %d are given", syntheticSource, len(c.Data.Source))
		}
		names, err := match(pattern)
		if err == nil && len(names) == 0 {
			err = fmt.Errorf("nothing matches %q", pattern)
		}
		var found []string
		if err == nil {
			found, err = expand(names...)
		}
		if err != nil {
			return nil, fmt.Errorf("data.source: %w", err)
		}
		out = append(out, found...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// match returns the files and folders that a pattern names. A name that exists is taken literally.
func match(pattern string) ([]string, error) {
	if _, err := os.Stat(pattern); err == nil {
		return []string{pattern}, nil
	}
	names, err := filepath.Glob(pattern)
	if err != nil {
		err = fmt.Errorf("%q: %w", pattern, err)
	}
	return names, err
}

// hdf5 are the extensions of files that are refused with what to do.
var hdf5 = []string{".h5", ".hdf5", ".hdf"}

// isSource reports whether a path is meant as flights, and not as a list of them.
func isSource(name string) bool {
	info, err := os.Stat(name)
	ext := strings.ToLower(filepath.Ext(name))
	return err == nil && info.IsDir() || ext == ".npz" || slices.Contains(hdf5, ext) || filepath.Base(name) == folderIndex
}

// expand lists the sources in files and folders.
func expand(names ...string) (out []string, err error) {
	for _, name := range names {
		found, err := expandOne(name)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func expandOne(name string) ([]string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if _, err := os.Stat(filepath.Join(name, folderIndex)); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return []string{name}, err
		}
		files, err := filepath.Glob(filepath.Join(name, "*.npz"))
		if err == nil && len(files) == 0 {
			err = fmt.Errorf("folder %s has neither %s nor NPZ files", name, folderIndex)
		}
		return files, err
	}
	switch ext := strings.ToLower(filepath.Ext(name)); {
	case ext == ".npz":
		return []string{name}, nil
	case filepath.Base(name) == folderIndex:
		return []string{filepath.Dir(name)}, nil
	case slices.Contains(hdf5, ext):
		return nil, fmt.Errorf("%s: HDF5 is not supported; convert each flight to an NPZ file, in Python:\n  numpy.savez_compressed(%q, frames=..., time=..., sza=..., saa=..., cbh=...)\nwith frames [N, H, W], time in seconds, angles in degrees and cbh in km (NaN where not known)",
			name, strings.TrimSuffix(name, filepath.Ext(name))+".npz")
	default:
		return nil, fmt.Errorf("%s: want an NPZ file, a folder of them, or a folder with %s", name, folderIndex)
	}
}

// flights returns the configured flights.
func flights(c *config.Config) ([]*flight, error) {
	if !generated(c) {
		names, err := sources(c)
		if err != nil {
			return nil, err
		}
		return readFlights(c, names)
	}
	var all []*flight
	m, s := config.Of[Model](c), config.Of[Synthetic](c)
	for k := range s.Flights {
		all = append(all, s.flight(k, m.Height, m.Width))
	}
	return all, nil
}

// readFlights opens NPZ files and folders of images, cropped and scaled to the model's size.
func readFlights(c *config.Config, names []string) (all []*flight, err error) {
	m, d := config.Of[Model](c), config.Of[Data](c)
	most := data.RecordLimit(int64(c.Data.MaxRecord))
	for _, name := range names {
		var found []*flight
		if strings.EqualFold(filepath.Ext(name), ".npz") {
			f, err := npzFlight(name, most)
			if err != nil {
				return nil, err
			}
			found = []*flight{f}
		} else if found, err = folderFlights(name, most); err != nil {
			return nil, err
		}
		for _, f := range found {
			if f, err = fit(f, d, m.Height, m.Width); err != nil {
				return nil, err
			}
			if slices.ContainsFunc(all, func(g *flight) bool { return g.Name == f.Name }) {
				return nil, fmt.Errorf("data.source: two flights are called %s", f.Name)
			}
			if f.Name != filepath.Base(f.Name) || !filepath.IsLocal(f.Name) || f.Name == "." {
				return nil, fmt.Errorf("data.source: %s: the flight name %q is not a file name", name, f.Name)
			}
			all = append(all, f)
		}
	}
	return all, nil
}

// storeKey identifies a store by the sizes and modification times of the sources, and by the settings that it
// depends on.
func storeKey(c *config.Config) (string, error) {
	m, d := config.Of[Model](c), config.Of[Data](c)
	h := sha256.New()
	// A hash never fails to write.
	_, _ = fmt.Fprintf(h, "1 %d %d %v %v %t %t\n", m.Height, m.Width, d.Rows, d.Columns, d.Resize, d.FlatField)
	if generated(c) {
		_, _ = fmt.Fprintf(h, "%+v\n", *config.Of[Synthetic](c))
		return hex.EncodeToString(h.Sum(nil)[:8]), nil
	}
	names, err := sources(c)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			name = filepath.Join(name, folderIndex)
		}
		info, err := os.Stat(name)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(h, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}
