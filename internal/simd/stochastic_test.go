package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/snug-ml/snug/internal/float16"
	"github.com/snug-ml/snug/internal/isa"
)

// Every level gives the same bits as portable Go, in parts or at once.
func TestStochasticBF16Levels(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	r := rand.New(rand.NewPCG(31, 32))
	for _, n := range lengths() {
		x := ordinary(r, n)
		if n > 3 {
			x[0], x[1], x[2], x[3] = float32(math.NaN()), float32(math.Inf(1)), math.MaxFloat32, -1e-42
		}
		var want []uint16
		for _, level = range Levels() {
			got, words := make([]uint16, n), make([]uint32, n)
			StochasticBF16(got, x, words, 7, 9, 0)
			cut := n / 2 &^ 1
			parts := make([]uint16, n)
			StochasticBF16(parts[:cut], x[:cut], words, 7, 9, 0)
			StochasticBF16(parts[cut:], x[cut:], words, 7, 9, uint64(cut))
			if level == isa.Portable {
				want = got
			}
			for i := range got {
				if got[i] != want[i] || parts[i] != want[i] {
					t.Fatalf("%v, %d elements: element %d is %#x, in parts %#x, portable %#x", level, n, i, got[i], parts[i], want[i])
				}
			}
		}
	}
}

// The mean of many roundings is the number, and each is one of its two neighbors.
func TestStochasticBF16Mean(t *testing.T) {
	const n = 1 << 16
	x, y, words := make([]float32, n), make([]uint16, n), make([]uint32, n/2)
	for _, v := range []float32{1 + 1.0/1024, -1 - 1.0/300, 3e-5, 1} {
		Fill(x, v)
		StochasticBF16(y, x, words, 1, 2, 0)
		sum := 0.0
		step := math.Exp2(math.Floor(math.Log2(math.Abs(float64(v)))) - 7)
		for _, h := range y {
			f := float64(float16.FromBF16(h))
			if math.Abs(f-float64(v)) >= step {
				t.Fatalf("%g becomes %g", v, f)
			}
			sum += f
		}
		// 5 standard deviations of the mean of n roundings
		if off := math.Abs(sum/n - float64(v)); off > 5*step/2/math.Sqrt(n) {
			t.Errorf("the mean of roundings of %g is off by %g, a step being %g", v, off, step)
		}
	}
}
