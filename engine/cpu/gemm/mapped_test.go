package gemm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/internal/isa"
)

// TestMapped: a product of mapped operands has the bits of the product of
// operands that were stored mapped.
func TestMapped(t *testing.T) {
	f := func(dst, x []float32) {
		for i, v := range x {
			dst[i] = 1.7*v*v - 0.3
		}
	}
	for _, level := range isa.Levels() {
		t.Run(level.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				size := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1, 200))
				m, n, k := size.Draw(t, "m"), size.Draw(t, "n"), size.Draw(t, "k")
				typ := rapid.SampledFrom([]DType{F32, F32, BF16, F16})
				ta, tb, tc := typ.Draw(t, "A"), typ.Draw(t, "B"), typ.Draw(t, "C")
				which := rapid.IntRange(1, 3).Draw(t, "which")
				transA := which == 2 && rapid.Bool().Draw(t, "transA")
				transB := which == 1 && rapid.Bool().Draw(t, "transB")
				gap := rapid.IntRange(0, 5)
				opts := Options{
					ISA:     level,
					Workers: rapid.IntRange(1, 64).Draw(t, "workers"),
					Compute: rapid.SampledFrom([]DType{F32, BF16}).Draw(t, "compute"),
					KC:      rapid.SampledFrom([]int{0, 16, 33, 150}).Draw(t, "kc"),
				}
				if rapid.Bool().Draw(t, "small groups") {
					opts.SharedLimit = 32 << 10
				}
				rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
				a := newOperand(m, k, gap.Draw(t, "gapA"), ta, transA, uniform(rng))
				b := newOperand(k, n, gap.Draw(t, "gapB"), tb, transB, uniform(rng))
				plain, mapped := newOperand(m, n, 0, tc, false, uniform(rng)), newOperand(m, n, 0, tc, false, uniform(rng))
				withMaps := opts
				fa, fb := a, b
				if which&1 != 0 {
					withMaps.MapA, fa = f, stored(a, f)
				}
				if which&2 != 0 {
					withMaps.MapB, fb = f, stored(b, f)
				}
				sequential(t, NewPlan(m, n, k, ta, tb, tc, transA, transB, opts), &Args{A: fa.Matrix, B: fb.Matrix, C: plain.Matrix}, rng)
				sequential(t, NewPlan(m, n, k, ta, tb, tc, transA, transB, withMaps), &Args{A: a.Matrix, B: b.Matrix, C: mapped.Matrix}, rng)
				if !slices.Equal(plain.bits(), mapped.bits()) {
					t.Fatal("the product of mapped operands differs from that of operands stored mapped")
				}
			})
		})
	}
}

// stored is an operand whose elements are f of o's.
func stored(o *operand, f Map) *operand {
	return newOperand(o.rows, o.cols, 0, o.Type, false, func(i, j int) float64 {
		v := []float32{float32(o.get(i, j))}
		f(v, v)
		return float64(v[0])
	})
}
