package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
)

// IndexSuffix follows the base name in the name of a sharded model's index, as
// in model.safetensors.index.json.
const IndexSuffix = ".safetensors.index.json"

// maxIndex bounds the index file that is read into memory.
const maxIndex = 2 * MaxHeader

// Model is a set of tensors kept in one file or in several shards.
type Model struct {
	files  []*File
	places map[string]*File
}

// OpenModel opens the model called base in a folder: base.safetensors, or the
// shards that base.safetensors.index.json names. With an index, each tensor
// must be in exactly the shard the index says, and each shard may hold nothing
// else. base is "model" in folders of transformers.
func OpenModel(dir, base string) (*Model, error) {
	index := filepath.Join(dir, base+IndexSuffix)
	single := filepath.Join(dir, base+".safetensors")
	if _, err := os.Stat(index); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("safetensors: %w", err)
		}
		f, err := Open(single)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("safetensors: %s has neither %s nor %s: %w", dir, filepath.Base(single), filepath.Base(index), os.ErrNotExist)
		}
		if err != nil {
			return nil, err
		}
		m := &Model{places: map[string]*File{}}
		m.add(f)
		return m, nil
	}
	if _, err := os.Stat(single); err == nil {
		return nil, &Error{Path: index, Problem: fmt.Sprintf("%s exists too: remove the outdated one", filepath.Base(single))}
	}
	weightMap, err := ReadIndex(index)
	if err != nil {
		return nil, err
	}
	m := &Model{places: map[string]*File{}}
	if err := m.openShards(dir, index, weightMap); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Model) add(f *File) {
	m.files = append(m.files, f)
	for _, t := range f.head.tensors {
		m.places[t.Name] = f
	}
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
		for _, t := range f.head.tensors {
			if says, ok := weightMap[t.Name]; !ok || says != shard {
				if !ok {
					says = "no shard"
				}
				return &Error{Path: f.path, Tensor: t.Name, Problem: fmt.Sprintf("the index %s places it in %s", filepath.Base(index), says)}
			}
			m.places[t.Name] = f
		}
	}
	for _, name := range slices.Sorted(maps.Keys(weightMap)) {
		if m.places[name] == nil {
			return &Error{Path: filepath.Join(dir, weightMap[name]), Tensor: name, Problem: "is named by the index, but not in the file"}
		}
	}
	return nil
}

// ReadIndex reads the weight_map of an index, which gives each tensor's file;
// other parts, such as metadata.total_size, inform people and decide nothing.
// The index of PyTorch's files has the same grammar.
func ReadIndex(path string) (map[string]string, error) {
	text, err := regular.Read(path, maxIndex)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	weightMap, err := parseIndex(text)
	return weightMap, atPath(err, path)
}

func parseIndex(text []byte) (map[string]string, error) {
	var doc struct {
		WeightMap json.RawMessage `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, errorf("", "is not a JSON index: %v", strictjson.Explain(err))
	}
	if len(doc.WeightMap) == 0 {
		return nil, errorf("", "has no weight_map")
	}
	weightMap := map[string]string{}
	s := &scanner{s: doc.WeightMap}
	err := s.object(func(name string) error {
		if _, twice := weightMap[name]; twice {
			return errorf(name, "the name appears twice in weight_map")
		}
		shard, err := s.str()
		if err != nil {
			return errorf(name, "its file must be a string: %v", err)
		}
		// A shard lies next to its index; anything else could read other files.
		if shard == "" || shard == "." || !filepath.IsLocal(shard) || strings.ContainsAny(shard, `/\`) {
			return errorf(name, "its file %q is not a plain file name next to the index", shard)
		}
		weightMap[name] = shard
		return nil
	})
	if err != nil {
		if e := (*Error)(nil); errors.As(err, &e) {
			return nil, err
		}
		return nil, errorf("", "weight_map: %v", err)
	}
	return weightMap, nil
}

// Tensors lists all tensors, sorted by name; an Offset counts within its shard.
func (m *Model) Tensors() []Info {
	var list []Info
	for _, f := range m.files {
		list = append(list, f.head.tensors...)
	}
	slices.SortFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Tensor returns a tensor by name from whichever file holds it.
func (m *Model) Tensor(name string) (Tensor, error) {
	f := m.places[name]
	if f == nil {
		return Tensor{}, errorf(name, "is not among the model's %d tensors", len(m.places))
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

// WriteModel writes a model into a folder: base.safetensors if it has at most
// shardBytes bytes of data (0: no limit), else shards of at most that size
// (a larger tensor has a shard to itself) and, last, their index. It returns
// the names of the files, the index included. Tensors are taken in the given
// order. A leftover of the other layout is removed, so that OpenModel sees one.
func WriteModel(dir, base string, entries []Entry, metadata map[string]string, shardBytes int64) ([]string, error) {
	var shards [][]Entry
	var total, filled int64
	seen := map[string]bool{}
	for _, e := range entries {
		size, err := e.size(seen)
		if err != nil {
			return nil, err
		}
		if len(shards) == 0 || shardBytes > 0 && filled > 0 && filled+size > shardBytes {
			shards = append(shards, nil)
			filled = 0
		}
		last := len(shards) - 1
		shards[last] = append(shards[last], e)
		filled += size
		total += size
	}
	index := filepath.Join(dir, base+IndexSuffix)
	if len(shards) <= 1 {
		name := base + ".safetensors"
		if err := WriteFile(filepath.Join(dir, name), entries, metadata); err != nil {
			return nil, err
		}
		return []string{name}, removeIfThere(index)
	}
	weightMap := map[string]string{}
	var names []string
	for i, shard := range shards {
		name := fmt.Sprintf("%s-%05d-of-%05d.safetensors", base, i+1, len(shards))
		if err := WriteFile(filepath.Join(dir, name), shard, metadata); err != nil {
			return nil, err
		}
		for _, e := range shard {
			weightMap[e.Name] = name
		}
		names = append(names, name)
	}
	doc := map[string]any{"metadata": map[string]int64{"total_size": total}, "weight_map": weightMap}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return nil, err
	}
	err = replaceFile(index, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
	if err != nil {
		return nil, err
	}
	return append(names, base+IndexSuffix), removeIfThere(filepath.Join(dir, base+".safetensors"))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
