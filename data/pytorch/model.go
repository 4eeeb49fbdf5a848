package pytorch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/internal/regular"
)

// IndexSuffix follows the base name in the name of a sharded model's index, as
// in pytorch_model.bin.index.json.
const IndexSuffix = ".bin.index.json"

// Model is a set of tensors kept in one file or in several shards.
type Model struct {
	files  []*File
	places map[string]*File
}

// OpenModel opens the model called base in a folder: base.bin, or the shards
// that base.bin.index.json names. With an index, each tensor must be in exactly
// the shard the index says, and each shard may hold nothing else. base is
// "pytorch_model" in folders of transformers.
func OpenModel(dir, base string) (*Model, error) {
	index := filepath.Join(dir, base+IndexSuffix)
	single := filepath.Join(dir, base+".bin")
	m := &Model{places: map[string]*File{}}
	if _, err := os.Stat(index); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("pytorch: %w", err)
		}
		f, err := Open(single)
		if err != nil {
			return nil, err
		}
		m.files = append(m.files, f)
		for name := range f.views {
			m.places[name] = f
		}
		return m, nil
	}
	if _, err := os.Stat(single); err == nil {
		return nil, &Error{Path: index, Problem: fmt.Sprintf("%s exists too: remove the one that is out of date", filepath.Base(single))}
	}
	weightMap, err := safetensors.ReadIndex(index)
	if err != nil {
		return nil, err
	}
	if err := m.openShards(dir, index, weightMap); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Model) openShards(dir, index string, weightMap map[string]string) error {
	folder, err := regular.NewFolder(dir)
	if err != nil {
		return err
	}
	for _, shard := range slices.Compact(slices.Sorted(maps.Values(weightMap))) {
		path, err := folder.Path(shard)
		if err != nil {
			return fmt.Errorf("%s: %w", index, err)
		}
		f, err := Open(path)
		if err != nil {
			return fmt.Errorf("%s: %w", index, err)
		}
		m.files = append(m.files, f)
		for _, name := range slices.Sorted(maps.Keys(f.views)) {
			if says, ok := weightMap[name]; !ok || says != shard {
				if !ok {
					says = "no shard"
				}
				return &Error{Path: f.path, Tensor: name, Problem: fmt.Sprintf("the index %s places it in %s", filepath.Base(index), says)}
			}
			m.places[name] = f
		}
	}
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		if m.places[name] == nil {
			return &Error{Path: filepath.Join(dir, weightMap[name]), Tensor: name, Problem: "is named by the index, but not in the file"}
		}
	}
	return nil
}

// Tensors lists all tensors, sorted by name; an Offset counts within its shard.
func (m *Model) Tensors() []safetensors.Info {
	var list []safetensors.Info
	for _, f := range m.files {
		list = append(list, f.Tensors()...)
	}
	slices.SortFunc(list, func(a, b safetensors.Info) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Tensor returns a tensor by name from whichever file holds it.
func (m *Model) Tensor(name string) (safetensors.Tensor, error) {
	f := m.places[name]
	if f == nil {
		return safetensors.Tensor{}, errorf(name, "is not among the model's %d tensors", len(m.places))
	}
	return f.Tensor(name)
}

// Close closes all files.
func (m *Model) Close() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
