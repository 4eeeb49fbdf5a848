package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
)

// Suffix ends the name of a file, and IndexSuffix follows it in the name of a
// sharded model's index, as in model.safetensors.index.json.
const (
	Suffix      = ".safetensors"
	IndexSuffix = ".index.json"
)

// maxIndex bounds the index file that is read into memory.
const maxIndex = 2 * MaxHeader

// Model is a set of tensors kept in one file or in several shards.
type Model = Sharded[*File]

var format = Format[*File]{
	Suffix: Suffix,
	Open:   Open,
	Wrong:  func(path, tensor, problem string) error { return &Error{Path: path, Tensor: tensor, Problem: problem} },
}

// OpenModel opens the model called base in a folder; base is "model" in folders
// of transformers.
func OpenModel(dir, base string) (*Model, error) { return format.OpenModel(dir, base) }

// ReadIndex reads the weight_map of an index, which gives each tensor's file;
// other parts, such as metadata.total_size, are for people and have no effect.
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

// WriteModel writes a model into a folder: base.safetensors if it has at most shardBytes
// bytes of data (0: no limit), otherwise shards of at most that size (a larger tensor has
// a shard to itself) and, last, their index. It returns the names of the files, the index
// included. Tensors are taken in the given order. Leftovers of the other layout are
// removed, so that OpenModel sees only one.
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
	index := filepath.Join(dir, base+Suffix+IndexSuffix)
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
	return append(names, base+Suffix+IndexSuffix), removeIfThere(filepath.Join(dir, base+".safetensors"))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
