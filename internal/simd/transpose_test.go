package simd

import (
	"testing"

	"pgregory.net/rapid"
)

// TestTranspose checks every element, and that nothing else is written.
func TestTranspose(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			side := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 4))
			rows, cols := side.Draw(t, "rows"), side.Draw(t, "cols")
			srcStride := cols + rapid.IntRange(0, 20).Draw(t, "srcPad")
			dstStride := rows + rapid.IntRange(0, 20).Draw(t, "dstPad")
			checkTransposed(t, Transpose, dstStride, srcStride, rows, cols)
			checkTransposed(t, Transpose16, dstStride, srcStride, rows, cols)
		})
	})
}

func checkTransposed[T float32 | uint16](t *rapid.T, transpose func(dst []T, dstStride int, src []T, srcStride, rows, cols int), dstStride, srcStride, rows, cols int) {
	src, dst := make([]T, rows*srcStride), make([]T, cols*dstStride+5)
	for i := range src {
		src[i] = T(i + 1)
	}
	transpose(dst, dstStride, src, srcStride, rows, cols)
	for p, v := range dst {
		want := T(0)
		if dstStride > 0 {
			if i, j := p%dstStride, p/dstStride; i < rows && j < cols {
				want = src[i*srcStride+j]
			}
		}
		if v != want {
			t.Fatalf("%T, %dx%d, strides %d and %d: element %d is %v, want %v", v, rows, cols, srcStride, dstStride, p, v, want)
		}
	}
}

func TestTransposeRefuses(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a transpose beyond its slices did not panic")
		}
	}()
	Transpose(make([]float32, 15), 4, make([]float32, 16), 4, 4, 4)
}
