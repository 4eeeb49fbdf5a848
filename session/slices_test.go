package session

import "testing"

// TestSlicesOf takes apart the arithmetic string of a checkpoint.
func TestSlicesOf(t *testing.T) {
	for text, want := range map[string]struct {
		kernels string
		slices  int
	}{
		"bf16 with avx512_bf16":                                                       {"bf16 with avx512_bf16", 0},
		"bf16 with avx512_bf16, blocks in 20 slices":                                  {"bf16 with avx512_bf16", 20},
		"bf16 with avx512_bf16" + exchangedBF16:                                       {"bf16 with avx512_bf16", 0},
		"bf16 with avx2, blocks in 4 slices" + addedUpBy + "3 processes" + normByHost: {"bf16 with avx2", 4},
		"bf16 with avx2, blocks in 4 slices" + sumsWiden + addedUpBy + "2 processes":  {"bf16 with avx2", 4},
		"bf16 with avx2, blocks in 4 slices" + exchangedBF16:                          {"bf16 with avx2", 4},
		"fp32 with kernels, blocks in pieces":                                         {"fp32 with kernels, blocks in pieces", 0},
		"":                                                                            {"", 0},
	} {
		if kernels, slices := slicesOf(text); kernels != want.kernels || slices != want.slices {
			t.Errorf("%q: %q and %d", text, kernels, slices)
		}
	}
}
