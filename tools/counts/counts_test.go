package main

import (
	"math"
	"testing"

	"github.com/snug-ml/snug/internal/counts"
)

// The committed table is what the kernels of this tree do: part of it is counted again,
// of every kind of kernel.
func TestTable(t *testing.T) {
	for _, prefix := range []string{"gemm_128_nn_f16", "gemm_64_tn_f32", "gemm_any_nt", "attention_f16_64", "attention_dkv_f16_32", "layer_norm_w256_f16", "layer_norm_grad_w256", "sum_rows_f16"} {
		again, err := measure(prefix)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) < 2 {
			t.Errorf("%s: %d units", prefix, len(again))
		}
		for unit, w := range again {
			have, ok := counts.Of(unit)
			if !ok {
				t.Errorf("%s is not in the table: go run ./tools/counts", unit)
				continue
			}
			a, b := have.Values(), w.Values()
			for i := range a {
				if math.Abs(a[i]-b[i]) > 1e-4*math.Abs(b[i])+1e-9 {
					t.Errorf("%s: the table has %g %s, the kernels take %g: go run ./tools/counts", unit, a[i], counts.Columns[i], b[i])
				}
			}
		}
	}
}

// The part of the work that grows is separated from the fixed part.
func TestSplit(t *testing.T) {
	fixed, each := split(counts.Work{FP32: 10 + 2*3}, counts.Work{FP32: 10 + 6*3}, 2, 6)
	if fixed.FP32 != 10 || each.FP32 != 3 {
		t.Errorf("%v and %v, want 10 and 3", fixed, each)
	}
}
