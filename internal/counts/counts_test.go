package counts

import "testing"

// The table can be read, and every family of a training step is in it.
func TestTable(t *testing.T) {
	for _, unit := range []string{"gemm_128_nn_f16 step", "gemm_any_tn_f16 tile", "attention_dq_f16_64 pair", "layer_norm_w1024_f16 element", "loop_f16 gelu", "loop_f32 copy"} {
		if w, ok := Of(unit); !ok || w.Issued() <= 0 {
			t.Errorf("%s: %v, %v", unit, w, ok)
		}
	}
	// An m16n8k8 is 1,024 products: 64 x 64 x 32 of them are 128.
	if w, _ := Of("gemm_64_nn_f16 step"); w.Tensor != 128 {
		t.Errorf("a step of a tile of 64 has %g tensor instructions, want 128", w.Tensor)
	}
	for _, bad := range []string{"unit\t1\t2\n", "unit\t1\t2\t3\t4\t5\t6\tmany\n"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
