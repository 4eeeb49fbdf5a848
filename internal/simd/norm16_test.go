package simd

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/snug-ml/snug/internal/isa"
)

// Norms of bfloat16 rows give the same bits as widening, norm and rounding.
func TestNormsBF16(t *testing.T) {
	const eps = 1e-5
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
			for _, n := range []int{64, 192, 512, 4096} {
				rng := rand.New(rand.NewPCG(11, uint64(n)))
				random := func() []float32 {
					v := make([]float32, n)
					for i := range v {
						v[i] = float32(rng.NormFloat64())
					}
					return v
				}
				narrow := func(v []float32) []uint16 {
					h := make([]uint16, n)
					F32ToBF16(h, v)
					return h
				}
				widened := func(h []uint16) []float32 {
					v := make([]float32, n)
					BF16ToF32(v, h)
					return v
				}
				x, dy, addend := narrow(random()), narrow(random()), narrow(random())
				gamma, beta := random(), random()

				y, want := make([]uint16, n), make([]float32, n)
				mean, rstd := LayerNormRowBF16(y, x, gamma, beta, eps)
				m, r := LayerNormRow(want, widened(x), gamma, beta, eps)
				if mean != m || rstd != r || !slices.Equal(y, narrow(want)) {
					t.Fatalf("%d: the norm differs from that of the row widened", n)
				}
				r = RMSNormRow(want, widened(x), gamma, eps)
				if got := RMSNormRowBF16(y, x, gamma, make([]float32, n), eps); got != r || !slices.Equal(y, narrow(want)) {
					t.Fatalf("%d: the RMS norm differs from that of the row widened", n)
				}

				for _, more := range [][]uint16{nil, addend} {
					sum, wantSum := random(), make([]float32, n)
					copy(wantSum, sum)
					rms := slices.Clone(dy)
					RMSNormRowGradBF16(rms, sum, random(), rms, x, more, gamma, rstd)
					RMSNormRowGrad(want, wantSum, widened(dy), widened(x), gamma, rstd)
					if more != nil {
						RoundBF16(want, want)
						Add(want, want, widened(more))
					}
					if !slices.Equal(rms, narrow(want)) || !slices.Equal(sum, wantSum) {
						t.Fatalf("%d, addend %v: the gradient of the RMS norm differs from that of the row widened", n, more != nil)
					}
					sums, wantSums := [2][]float32{random(), random()}, [2][]float32{}
					for k := range sums {
						wantSums[k] = slices.Clone(sums[k])
					}
					dx := slices.Clone(dy) // in place
					LayerNormRowGradBF16(dx, sums[0], sums[1], dx, x, more, gamma, mean, rstd)
					LayerNormRowGrad(want, wantSums[0], wantSums[1], widened(dy), widened(x), gamma, mean, rstd)
					if more != nil {
						RoundBF16(want, want)
						Add(want, want, widened(more))
					}
					if !slices.Equal(dx, narrow(want)) || !slices.Equal(sums[0], wantSums[0]) || !slices.Equal(sums[1], wantSums[1]) {
						t.Fatalf("%d, addend %v: the gradient differs from that of the row widened", n, more != nil)
					}
				}
			}
		})
	}
}
