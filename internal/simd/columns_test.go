package simd

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/snug-ml/snug/internal/isa"
)

// AddRows gives the same bits as adding row by row at every level, and writes nothing
// after its sums.
func TestAddRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
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
			for _, cols := range []int{0, 1, 7, 8, 15, 16, 64, 65, 132, 148} {
				for _, rows := range []int{0, 1, 2, 37} {
					for _, stride := range []int{cols, cols + 5} {
						x := make([]float32, max(0, (rows-1)*stride+cols))
						for i := range x {
							x[i] = float32(rng.NormFloat64())
						}
						half := make([]uint16, len(x))
						F32ToBF16(half, x)
						want, wantHalf := make([]float32, cols+1), make([]float32, cols+1)
						for j := range want {
							want[j], wantHalf[j] = float32(j), float32(j)
						}
						got, gotHalf := slices.Clone(want), slices.Clone(want)
						for r := range rows {
							row := make([]float32, cols)
							BF16ToF32(row, half[r*stride:r*stride+cols])
							Add(want[:cols], want[:cols], x[r*stride:r*stride+cols])
							Add(wantHalf[:cols], wantHalf[:cols], row)
						}
						AddRows(got[:cols], x, rows, stride)
						AddRowsBF16(gotHalf[:cols], half, rows, stride)
						if !slices.Equal(got, want) || !slices.Equal(gotHalf, wantHalf) {
							t.Fatalf("%d x %d, %d apart: %v and %v, want %v and %v", rows, cols, stride, got, gotHalf, want, wantHalf)
						}
					}
				}
			}
		})
	}
}
