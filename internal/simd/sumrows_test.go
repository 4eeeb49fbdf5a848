package simd

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Sums of short rows have the bits of SumF64.
func TestSumRowsF64(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for size := 1; size <= 40; size++ {
		dst, x := make([]float32, 200), make([]float32, 200*size)
		for i := range x {
			x[i] = float32(math.Ldexp(rng.NormFloat64(), rng.IntN(80)-40)) // so that the order decides
			if i < 10*size {
				x[i] = float32(math.Copysign(0, -1))
			}
		}
		SumRowsF64(dst, x)
		for i, got := range dst {
			if want := float32(SumF64(x[i*size : (i+1)*size])); math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("row %d of %d: %v, want %v", i, size, got, want)
			}
		}
	}
}
