package simd

import (
	"math/rand/v2"
	"testing"

	"github.com/snug-ml/snug/internal/isa"
)

// Each sum of MatVec equals Dot's at every level, for any width.
func TestMatVec(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, level := range Levels() {
		t.Run(level.String(), func(t *testing.T) {
			if err := Use(level); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := Use(isa.Best()); err != nil {
					t.Error(err)
				}
			}()
			for _, cols := range []int{1, 63, 64, 65, 128, 384, 1000} {
				for _, rows := range []int{1, 2, 7} {
					w, x := make([]float32, rows*cols), make([]float32, cols)
					for i := range w {
						w[i] = float32(rng.NormFloat64())
					}
					for i := range x {
						x[i] = float32(rng.NormFloat64())
					}
					half := make([]uint16, len(w))
					F32ToBF16(half, w)
					rounded := make([]float32, len(w))
					BF16ToF32(rounded, half)
					y := make([]float32, rows+1)
					y[rows] = 42 // must stay
					yh := append([]float32(nil), y...)
					MatVec(y[:rows], w, x)
					MatVecBF16(yh[:rows], half, x)
					for r := range rows {
						if want := Dot(w[r*cols:(r+1)*cols], x); y[r] != want {
							t.Fatalf("%d x %d: row %d is %v, Dot gives %v", rows, cols, r, y[r], want)
						}
						if want := Dot(rounded[r*cols:(r+1)*cols], x); yh[r] != want {
							t.Fatalf("%d x %d bf16: row %d is %v, Dot gives %v", rows, cols, r, yh[r], want)
						}
					}
					if y[rows] != 42 || yh[rows] != 42 {
						t.Fatalf("%d x %d: wrote past the result", rows, cols)
					}
				}
			}
		})
	}
}
