package safetensors

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/snug-ml/snug/internal/regular"
)

func bytesEntry(name string, n int) Entry {
	return Entry{Name: name, DType: U8, Shape: []int{n}, Data: bytes.Repeat([]byte(name[:1]), n)}
}

func TestShards(t *testing.T) {
	list := []Entry{bytesEntry("a", 10), bytesEntry("b", 10), bytesEntry("c", 30), bytesEntry("d", 5), bytesEntry("e", 5)}
	dir := t.TempDir()
	for _, c := range []struct {
		limit int64
		files []string
	}{
		{0, []string{"model.safetensors"}},
		{20, []string{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors", "model.safetensors.index.json"}},
		{60, []string{"model.safetensors"}},
	} {
		names, err := WriteModel(dir, "model", list, map[string]string{"format": "pt"}, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.files, names); diff != "" {
			t.Error(diff)
		}
		m, err := OpenModel(dir, "model")
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Tensors()) != len(list) || len(m.files) != max(1, len(c.files)-1) {
			t.Errorf("%d tensors in %d files", len(m.Tensors()), len(m.files))
		}
		for _, e := range list {
			got, err := m.Tensor(e.Name)
			if err != nil || !bytes.Equal(got.Data, e.Data) {
				t.Errorf("%s: %v", e.Name, err)
			}
		}
		if _, err := m.Tensor("x"); err == nil || !strings.Contains(err.Error(), `tensor "x": is not among the model's 5 tensors`) {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A shard is the file next to its index, not one elsewhere reached by a link.
func TestShardOutside(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	names, err := WriteModel(dir, "model", []Entry{bytesEntry("a", 10), bytesEntry("b", 10)}, nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(dir, names[0])
	if err := errors.Join(os.Rename(first, filepath.Join(other, "x")), os.Symlink(filepath.Join(other, "x"), first)); err != nil {
		t.Skip(err)
	}
	if _, err := OpenModel(dir, "model"); !errors.Is(err, regular.ErrOutside) || !strings.Contains(err.Error(), names[0]) {
		t.Error(err)
	}
}

func TestOpenModelRefuses(t *testing.T) {
	write := func(t *testing.T, dir, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, index, want string }{
		{"not JSON", `{"weight_map"`, "not a JSON index"},
		{"no map", `{"metadata":{}}`, "has no weight_map"},
		{"map is a list", `{"weight_map":[]}`, "weight_map: header byte 0: want '{'"},
		{"parent", `{"weight_map":{"a":"../model.bin"}}`, "not a plain file name"},
		{"absolute", `{"weight_map":{"a":"/etc/passwd"}}`, "not a plain file name"},
		{"backslash", `{"weight_map":{"a":"..\\x"}}`, "not a plain file name"},
		{"dot", `{"weight_map":{"a":"."}}`, "not a plain file name"},
		{"empty name", `{"weight_map":{"a":""}}`, "not a plain file name"},
		{"number", `{"weight_map":{"a":1}}`, "must be a string"},
		{"twice", `{"weight_map":{"a":"s1","a":"s1"}}`, `tensor "a": the name appears twice`},
		{"missing shard", `{"weight_map":{"a":"s9"}}`, "s9: no such file"},
		{"missing tensor", `{"weight_map":{"a":"s1","b":"s2","z":"s2"}}`, `tensor "z": is named by the index, but not in the file`},
		{"wrong shard", `{"weight_map":{"b":"s3","c":"s2"}}`, `tensor "b": the index model.safetensors.index.json places it in s3`},
		{"surplus in shard", `{"weight_map":{"b":"s3"}}`, `tensor "c": the index model.safetensors.index.json places it in no shard`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for shard, list := range map[string][]Entry{"s1": {bytesEntry("a", 1)}, "s2": {bytesEntry("b", 1)}, "s3": {bytesEntry("b", 1), bytesEntry("c", 1)}} {
				if err := WriteFile(filepath.Join(dir, shard), list, nil); err != nil {
					t.Fatal(err)
				}
			}
			write(t, dir, "model"+Suffix+IndexSuffix, c.index)
			_, err := OpenModel(dir, "model")
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v\nwant it to say %q and where", err, c.want)
			}
		})
	}
	dir := t.TempDir()
	if _, err := OpenModel(dir, "model"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), dir) {
		t.Errorf("empty folder: %v", err)
	}
	write(t, dir, "model.safetensors", string(file("{}", 0)))
	write(t, dir, "model"+Suffix+IndexSuffix, `{"weight_map":{}}`)
	if _, err := OpenModel(dir, "model"); err == nil || !strings.Contains(err.Error(), "exists too") {
		t.Errorf("both layouts: %v", err)
	}
}

func FuzzIndex(f *testing.F) {
	f.Add(`{"metadata":{"total_size":1},"weight_map":{"a":"s1","b":"s2"}}`)
	f.Add(`{"weight_map":{"a":"../x"}}`)
	f.Add(`{"weight_map":{"a":1}}`)
	f.Fuzz(func(t *testing.T, text string) {
		weightMap, err := parseIndex([]byte(text))
		if err != nil {
			return
		}
		for name, shard := range weightMap {
			if filepath.Dir(filepath.Join("folder", shard)) != "folder" {
				t.Errorf("tensor %q may read %q", name, shard)
			}
		}
	})
}
