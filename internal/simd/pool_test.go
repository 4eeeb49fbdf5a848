package simd

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestMaxPool compares maxima and their gradients with the definition, at every level and
// in both formats, with many equal elements and some NaNs.
func TestMaxPool(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	for _, ch := range []int{PoolChannels, 3 * PoolChannels} {
		for _, windows := range []int{1, 2, 5} {
			n := windows * ch
			rows := [2][]float32{make([]float32, 2*n), make([]float32, 2*n)}
			dy := ordinary(r, n)
			RoundBF16(dy, dy)
			for i := range 2 * n {
				for _, x := range rows {
					x[i] = float32(r.IntN(5) - 2)
					if r.IntN(20) == 0 {
						sample(r, x[i:i+1])
						RoundBF16(x[i:i+1], x[i:i+1])
					}
				}
			}
			want, grads := make([]float32, n), [2][]float32{make([]float32, 2*n), make([]float32, 2*n)}
			for i := range want {
				k := 2*(i-i%ch) + i%ch // the left of the window
				want[i] = max(rows[0][k], rows[1][k], rows[0][k+ch], rows[1][k+ch])
				for _, e := range [4][2]int{{0, k}, {0, k + ch}, {1, k}, {1, k + ch}} {
					if !(rows[e[0]][e[1]] < want[i]) {
						grads[e[0]][e[1]] = dy[i]
						break
					}
				}
			}
			eachLevel(t, func(t *testing.T) {
				y, check := guarded(t, n)
				MaxPool(y, rows[0], rows[1], ch)
				check()
				equalValues(t, "MaxPool", y, want)
				dx0, check0 := guarded(t, 2*n)
				dx1, check1 := guarded(t, 2*n)
				MaxPoolGrad(dx0, dx1, dy, y, rows[0], rows[1], ch)
				check0()
				check1()
				equalValues(t, "MaxPoolGrad, upper row", dx0, grads[0])
				equalValues(t, "MaxPoolGrad, lower row", dx1, grads[1])

				narrow := func(x []float32) []uint16 {
					h := make([]uint16, len(x))
					f32ToBF16Go(h, x)
					return h
				}
				wide := func(h []uint16) []float32 {
					x := make([]float32, len(h))
					bf16ToF32Go(x, h)
					return x
				}
				yh, d0, d1 := make([]uint16, n+40), make([]uint16, 2*n+40), make([]uint16, 2*n+40)
				x0, x1 := narrow(rows[0]), narrow(rows[1])
				MaxPoolBF16(yh[:n], x0, x1, ch)
				equalValues(t, "MaxPoolBF16", wide(yh[:n]), want)
				MaxPoolGradBF16(d0[:2*n], d1[:2*n], narrow(dy), yh[:n], x0, x1, ch)
				equalValues(t, "MaxPoolGradBF16, upper row", wide(d0[:2*n]), grads[0])
				equalValues(t, "MaxPoolGradBF16, lower row", wide(d1[:2*n]), grads[1])
				for _, behind := range [][]uint16{yh[n:], d0[2*n:], d1[2*n:]} {
					if slices.ContainsFunc(behind, func(h uint16) bool { return h != 0 }) {
						t.Errorf("%d windows of %d channels: wrote past the end", windows, ch)
					}
				}
			})
		}
	}
}

// equalValues fails unless got is want, the two zeros being one.
func equalValues(t *testing.T, name string, got, want []float32) {
	t.Helper()
	for i, v := range got {
		if v != want[i] && !bitsEqual(v, want[i]) {
			t.Fatalf("%s: element %d of %d is %g, want %g", name, i, len(got), v, want[i])
		}
	}
}
