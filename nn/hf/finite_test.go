package hf

import (
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
)

// A folder's tensor with a value that is not finite is refused by its file and its
// name, before a weight is changed.
func TestWeightsAreFinite(t *testing.T) {
	f := openFolder(t, "gpt2")
	var name string
	dir := edited(t, "gpt2", func(entries []safetensors.Entry) []safetensors.Entry {
		e := &entries[len(entries)-1]
		if name = e.Name; e.DType != safetensors.F32 {
			t.Fatalf("%s is %s", name, e.DType)
		}
		e.Data = slices.Clone(e.Data)
		copy(e.Data[8:], []byte{0, 0, 0xc0, 0x7f})
		return entries
	})
	change := func(state string, _ func([]float32) error) error {
		t.Errorf("%s is changed", state)
		return nil
	}
	_, err := f.Load(dir, program(t, f.Config).Program().States, change, LoadOptions{})
	if err == nil || !strings.Contains(err.Error(), `model.safetensors: tensor "`+name+`": has 1 values that are NaN or infinite, the first is NaN, value 2`) {
		t.Error(err)
	}
}
