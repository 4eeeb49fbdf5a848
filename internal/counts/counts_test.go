package counts

import "testing"

// The table can be read, and every family of a training step is in it.
func TestTable(t *testing.T) {
	for _, unit := range []string{"gemm_128_nn_f16 step", "gemm_any_tn_f16 tile", "attention_dq_f16_64 pair", "layer_norm_w1024_f16 line", "step gelu", "loop warp"} {
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

// By NVIDIA's own occupancy calculator for a card of capability 7.5.
func TestOccupancy(t *testing.T) {
	for _, c := range []struct {
		threads, registers, shared int
		blocks                     int
		limit                      string
	}{
		{256, 22, 0, 4, "threads"},
		{128, 110, 20480, 3, "shared memory"},
		{128, 166, 18432, 3, "registers"},
		{128, 180, 9472, 2, "registers"},
		{128, 190, 18432, 2, "registers"},
		{32, 16, 0, 16, "blocks"},
	} {
		blocks, limit := Resources{Threads: c.threads, Registers: c.registers, Shared: c.shared}.Blocks()
		if blocks != c.blocks || limit != c.limit {
			t.Errorf("%d threads with %d registers and %d bytes of shared memory: %d blocks by %s, want %d by %s", c.threads, c.registers, c.shared, blocks, limit, c.blocks, c.limit)
		}
	}
}
