package main

import "testing"

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
