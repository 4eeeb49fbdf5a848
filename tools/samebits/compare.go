package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
)

// tensors are the hashes of the tensors of a file by name: of type, shape and data.
type tensors map[string][sha256.Size]byte

// rename replaces parts of the names.
func (t tensors) rename(names map[string]string) {
	for name, sum := range maps.Clone(t) {
		parts := strings.Split(name, ".")
		for i, p := range parts {
			if to, ok := names[p]; ok {
				parts[i] = to
			}
		}
		delete(t, name)
		t[strings.Join(parts, ".")] = sum
	}
}

// hashes reads the checkpoints below dir, by the path of the file in dir.
func hashes(dir string) (map[string]tensors, error) {
	all := map[string]tensors{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".safetensors" || !strings.Contains(path, string(filepath.Separator)+"checkpoints"+string(filepath.Separator)) {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		all[rel], err = hashFile(path)
		return err
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s: the run saved no checkpoint", dir)
	}
	return all, err
}

func hashFile(path string) (t tensors, err error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t = tensors{}
	for _, info := range f.Tensors() {
		x, err := f.Tensor(info.Name)
		if err != nil {
			return nil, err
		}
		t[x.Name] = sha256.Sum256(fmt.Appendf(nil, "%v %v %x", x.DType, x.Shape, sha256.Sum256(x.Data)))
	}
	return t, nil
}

// difference is what two runs saved differently.
type difference struct {
	files, tensors int // of both
	names          []string
}

// diff compares files of tensors; what only one side has differs.
func diff(a, b map[string]tensors) *difference {
	d := &difference{}
	for _, file := range union(a, b) {
		d.files++
		for _, name := range union(a[file], b[file]) {
			d.tensors++
			x, inA := a[file][name]
			y, inB := b[file][name]
			where := file + ": " + name
			switch {
			case !inA:
				d.names = append(d.names, where+" (only after)")
			case !inB:
				d.names = append(d.names, where+" (only before)")
			case x != y:
				d.names = append(d.names, where)
			}
		}
	}
	return d
}

// union is the keys of either map, sorted.
func union[V any](a, b map[string]V) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}

// first names the first difference.
func (d *difference) first() string {
	if len(d.names) == 0 {
		return "same"
	}
	return "first: " + d.names[0]
}
