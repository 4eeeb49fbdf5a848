package main

import "testing"

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
		blocks, limit := occupancy(c.threads, figures{registers: c.registers, shared: c.shared})
		if blocks != c.blocks || limit != c.limit {
			t.Errorf("%d threads with %d registers and %d bytes of shared memory: %d blocks by %s, want %d by %s", c.threads, c.registers, c.shared, blocks, limit, c.blocks, c.limit)
		}
	}
}

func TestGroup(t *testing.T) {
	for name, want := range map[string]string{
		"gemm_128_nt_bf16_0123456789abcdef": "gemm_128_nt",
		"layer_norm_grad_w256_f32_f16":      "layer_norm_grad_w256",
		"embedding_i32_f16":                 "embedding",
		"attention_dkv_f16_128":             "attention_dkv_128",
		"loop_fedcba9876543210":             "loop",
		"adamw":                             "adamw",
	} {
		if got := group(name); got != want {
			t.Errorf("%s belongs to %s, want %s", name, got, want)
		}
	}
}
