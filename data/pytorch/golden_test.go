package pytorch

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
)

// Files written by torch equal those of safetensors' own writer for the same tensors
// (tools/goldens/pytorch.py).
func TestGoldens(t *testing.T) {
	for file, expected := range map[string]string{
		"protocol2.bin": "expected", "protocol3.bin": "expected", "protocol4.bin": "expected", "protocol5.bin": "expected",
		"plaindict.bin": "expected", "nosums.bin": "expected", "module.bin": "module",
	} {
		t.Run(file, func(t *testing.T) {
			f, err := Open(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			want, err := safetensors.Open(filepath.Join("testdata", expected+".safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer want.Close()
			if a, b := len(f.Tensors()), len(want.Tensors()); a != b {
				t.Fatalf("%d tensors, want %d", a, b)
			}
			for _, w := range want.Tensors() {
				x, err := f.Tensor(w.Name)
				if err != nil {
					t.Fatal(err)
				}
				y, err := want.Tensor(w.Name)
				if err != nil {
					t.Fatal(err)
				}
				if x.DType != y.DType || !slices.Equal(x.Shape, y.Shape) || !bytes.Equal(x.Data, y.Data) {
					t.Errorf("%s: %s %v % x, want %s %v % x", w.Name, x.DType, x.Shape, x.Data, y.DType, y.Shape, y.Data)
				}
			}
		})
	}
}

// Tensors in order are not copied: they and their views share the file's bytes.
func TestNothingIsCopied(t *testing.T) {
	f, err := Open(filepath.Join("testdata", "protocol2.bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	get := func(name string) *byte {
		x, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		return &x.Data[0]
	}
	if get("parameter") != get("tied") {
		t.Error("tied parameters are two")
	}
	whole, err := f.Tensor("whole")
	if err != nil {
		t.Fatal(err)
	}
	if get("rows") != &whole.Data[2*8*4] {
		t.Error("rows of a matrix were copied")
	}
	if get("transposed") == &whole.Data[0] {
		t.Error("a transposed matrix is in its storage's order")
	}
}
