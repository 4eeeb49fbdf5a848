package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/tools/bits"
)

// save writes a checkpoint of one-element tensors below a run directory.
func save(t *testing.T, dir string, values map[string]uint32) {
	t.Helper()
	var entries []safetensors.Entry
	for name, v := range values {
		entries = append(entries, safetensors.Entry{Name: name, DType: safetensors.F32, Shape: []int{1}, Data: binary.LittleEndian.AppendUint32(nil, v)})
	}
	var b bytes.Buffer
	if _, err := safetensors.Write(&b, entries, nil); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "checkpoints", "step-1")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestDiff(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	save(t, a, map[string]uint32{"x.own.w": 1, "y": 2, "z": 3})
	save(t, b, map[string]uint32{"x.self_attn.w": 1, "y": 4, "new": 5})
	before, err := bits.Hashes(a)
	if err != nil {
		t.Fatal(err)
	}
	after, err := bits.Hashes(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range before {
		f.Rename(map[string]string{"own": "self_attn"})
	}
	if d := diff(before, after); d.files != 1 || d.tensors != 4 || len(d.names) != 3 {
		t.Errorf("%+v", d)
	}
	if d := diff(after, after); len(d.names) != 0 || d.first() != "same" {
		t.Errorf("a run differs from itself: %+v", d)
	}
	if _, err := bits.Hashes(t.TempDir()); err == nil {
		t.Error("a run without checkpoints is compared")
	}
}
