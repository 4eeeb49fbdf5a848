package hf

import (
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
)

// one is a source of one tensor.
type one struct{ t safetensors.Tensor }

func (o one) Tensor(string) (safetensors.Tensor, error) { return o.t, nil }
func (o one) Tensors() []safetensors.Info               { return []safetensors.Info{o.t.Info} }

// A folder's tensor with a value that is no number is refused by its name.
func TestWeightsAreFinite(t *testing.T) {
	x := safetensors.Tensor{Info: safetensors.Info{Name: "w", DType: safetensors.BF16, Shape: []int{3}}, Data: []byte{0, 0x3f, 0, 0x3f, 0, 0x3f}}
	if err := finite(one{x}, "w"); err != nil {
		t.Error(err)
	}
	x.Data[4], x.Data[5] = 0xc0, 0x7f
	err := finite(one{x}, "w")
	if err == nil || !strings.Contains(err.Error(), `tensor "w" has 1 values that are NaN or infinite, the first is NaN, value 2`) {
		t.Error(err)
	}
}
