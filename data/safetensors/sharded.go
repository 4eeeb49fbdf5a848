package safetensors

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/regular"
)

// Container is an open file with tensors by name.
type Container interface {
	Tensors() []Info
	Tensor(name string) (Tensor, error)
	Close() error
}

// Format is a file format for weights whose models are one file, or shards with an
// index that maps tensors to shards.
type Format[F Container] struct {
	Suffix string // of a file's name
	Open   func(path string) (F, error)
	Wrong  func(path, tensor, problem string) error
}

// Sharded is a set of tensors kept in one file or in several shards of a format.
type Sharded[F Container] struct {
	wrong  func(path, tensor, problem string) error
	files  []F
	places map[string]F
}

// OpenModel opens the model called base in a folder: base with the suffix, or the
// shards that its index names. With an index, each tensor must be in exactly the
// shard that the index names, and each shard may contain nothing else.
func (f Format[F]) OpenModel(dir, base string) (*Sharded[F], error) {
	single := filepath.Join(dir, base+f.Suffix)
	index := single + IndexSuffix
	_, errSingle := os.Stat(single)
	_, errIndex := os.Stat(index)
	switch {
	case errIndex != nil && !errors.Is(errIndex, os.ErrNotExist):
		return nil, f.Wrong(index, "", errIndex.Error())
	case errIndex == nil && errSingle == nil:
		return nil, f.Wrong(index, "", filepath.Base(single)+" exists too: remove the one that is out of date")
	case errIndex != nil && errors.Is(errSingle, os.ErrNotExist):
		return nil, fmt.Errorf("%s has neither %s nor %s: %w", dir, filepath.Base(single), filepath.Base(index), os.ErrNotExist)
	}
	m := &Sharded[F]{wrong: f.Wrong, places: map[string]F{}}
	var err error
	if errIndex != nil {
		err = m.open(f, single, func(string) error { return nil })
	} else {
		err = m.openShards(f, dir, index)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// open adds a file, each of whose tensors must be placed there.
func (m *Sharded[F]) open(f Format[F], path string, placed func(tensor string) error) error {
	file, err := f.Open(path)
	if err != nil {
		return err
	}
	m.files = append(m.files, file)
	for _, t := range file.Tensors() {
		if err := placed(t.Name); err != nil {
			return err
		}
		m.places[t.Name] = file
	}
	return nil
}

func (m *Sharded[F]) openShards(f Format[F], dir, index string) error {
	weightMap, err := ReadIndex(index)
	if err != nil {
		return err
	}
	folder, err := regular.NewFolder(dir)
	if err != nil {
		return err
	}
	for _, shard := range slices.Compact(slices.Sorted(maps.Values(weightMap))) {
		path, err := folder.Path(shard)
		if err == nil {
			err = m.open(f, path, func(name string) error {
				says, ok := weightMap[name]
				if !ok {
					says = "no shard"
				}
				if says != shard {
					return m.wrong(path, name, fmt.Sprintf("the index %s places it in %s", filepath.Base(index), says))
				}
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", index, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		if _, ok := m.places[name]; !ok {
			return m.wrong(filepath.Join(dir, weightMap[name]), name, "is named by the index, but not in the file")
		}
	}
	return nil
}

// Tensors lists all tensors, sorted by name; an Offset counts within its shard.
func (m *Sharded[F]) Tensors() []Info {
	var list []Info
	for _, f := range m.files {
		list = append(list, f.Tensors()...)
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Tensor returns a tensor by name from whichever file has it.
func (m *Sharded[F]) Tensor(name string) (Tensor, error) {
	f, ok := m.places[name]
	if !ok {
		return Tensor{}, m.wrong("", name, fmt.Sprintf("is not among the model's %d tensors", len(m.places)))
	}
	return f.Tensor(name)
}

// Close closes all files.
func (m *Sharded[F]) Close() error {
	var errs []error
	for _, f := range m.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
