package safetensors

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"testing"
)

// TestReference reads a file that the reference implementation wrote (see
// tools/safetensors/golden.py) and writes the same bytes again.
func TestReference(t *testing.T) {
	f, err := Open("testdata/python.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := os.ReadFile("testdata/python.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]struct {
		Shape  []int
		SHA256 string
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if len(f.Tensors()) != len(want) {
		t.Errorf("%d tensors, want %d", len(f.Tensors()), len(want))
	}
	var list []Entry
	for name, w := range want {
		got, err := f.Tensor(name)
		if err != nil {
			t.Error(err)
			continue
		}
		sum := sha256.Sum256(got.Data)
		if hex.EncodeToString(sum[:]) != w.SHA256 || !slices.Equal(got.Shape, w.Shape) {
			t.Errorf("%s: shape %v, want %v, or other bytes", name, got.Shape, w.Shape)
		}
		list = append(list, Entry{Name: name, DType: got.DType, Shape: got.Shape, Data: got.Data})
	}
	var out bytes.Buffer
	if _, err := Write(&out, list, f.Metadata()); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("testdata/python.safetensors")
	if err != nil || !bytes.Equal(out.Bytes(), file) {
		t.Errorf("the file written is not the reference's (%v)", err)
	}
}
