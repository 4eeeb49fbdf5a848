package hf

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/nn"
)

// A layer with a matrix for each expert is written in PEFT's layout: for its factors,
// einsum("o r e, e r i -> e o i") makes the update that we merge. It is read back
// unchanged.
func TestWriteStackedAdapter(t *testing.T) {
	const experts, rank, in, out = 3, 2, 4, 5
	numbers := func(n int, f func(float64) float64) (x []float32, data []byte) {
		for i := range n {
			x = append(x, float32(f(float64(i))))
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x[i]))
		}
		return x, data
	}
	down, downBytes := numbers(experts*rank*in, math.Sin)
	up, upBytes := numbers(experts*out*rank, math.Cos)
	_, plain := numbers(rank*in, math.Sqrt)
	_, plainUp := numbers(out*rank, math.Exp)
	path := filepath.Join(t.TempDir(), "trained.safetensors")
	err := safetensors.WriteFile(path, []safetensors.Entry{
		{Name: "experts.up.lora.down", DType: safetensors.F32, Shape: []int{experts, rank, in}, Data: downBytes},
		{Name: "experts.up.lora.up", DType: safetensors.F32, Shape: []int{experts, out, rank}, Data: upBytes},
		{Name: "dense.lora.down", DType: safetensors.F32, Shape: []int{rank, in}, Data: plain},
		{Name: "dense.lora.up", DType: safetensors.F32, Shape: []int{out, rank}, Data: plainUp},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	src, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	a := &nn.Adapters{LoRA: nn.LoRA{Rank: rank, Alpha: 3, Dropout: 0.1, Variant: nn.PlainLoRA}, Targets: []string{"up", "dense"}}
	dir := filepath.Join(t.TempDir(), "adapter")
	if _, err := WriteAdapter(dir, a, AdapterBase{Folder: "base"}, src); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, AdapterConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(string(text)), " ")
	for _, want := range []string{`"target_parameters": [ "experts.up.weight" ]`, `"target_modules": [ "dense" ]`, `"lora_dropout": 0`, `"task_type": null`} {
		if !strings.Contains(flat, want) {
			t.Errorf("the configuration has no %s: %s", want, text)
		}
	}
	theirs, err := safetensors.Open(filepath.Join(dir, AdapterWeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	A, B := openF32(t, theirs, peftPrefix+"experts.up.lora_A.weight"), openF32(t, theirs, peftPrefix+"experts.up.lora_B.weight")
	merged := make([]float32, experts*out*in)
	if err := a.MergeStack(merged, nn.Factors{Down: down, Up: up}, experts); err != nil {
		t.Fatal(err)
	}
	for e := range experts {
		for o := range out {
			for i := range in {
				sum := 0.0
				for r := range rank {
					sum += float64(B[o*rank*experts+r*experts+e]) * float64(A[(e*rank+r)*in+i])
				}
				if got, want := merged[(e*out+o)*in+i], a.Scale()*sum; math.Abs(float64(got)-want) > 1e-6 {
					t.Fatalf("element %d, %d of expert %d is %v, in PEFT %v", o, i, e, got, want)
				}
			}
		}
	}
	_, back, err := ReadAdapter(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	for _, x := range src.Tensors() {
		got, err := back.Tensor(x.Name)
		if err != nil {
			t.Fatal(err)
		}
		if want, _ := src.Tensor(x.Name); !slices.Equal(got.Shape, want.Shape) || !slices.Equal(got.Data, want.Data) {
			t.Errorf("%s is %v, was %v, or has other numbers", x.Name, got.Shape, want.Shape)
		}
	}
	for _, c := range []struct{ old, new, want string }{
		{`experts.up.weight`, `experts.gate_up_proj`, "target_parameters has experts.gate_up_proj"},
		{`"use_dora": false`, `"use_dora": true`, "use_dora is true with target_parameters"},
	} {
		if _, _, err := parseAdapter([]byte(strings.Replace(string(text), c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.new, err, c.want)
		}
	}
}
