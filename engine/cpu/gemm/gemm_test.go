package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/internal/isa"
)

// TestProperty compares every instruction set with float64 for random shapes,
// types, transposes, strides and block sizes.
func TestProperty(t *testing.T) {
	for _, level := range isa.Levels() {
		t.Run(level.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				size := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(1, 200))
				m, n, k := size.Draw(t, "m"), size.Draw(t, "n"), size.Draw(t, "k")
				typ := rapid.SampledFrom([]DType{F32, F32, BF16, F16})
				ta, tb, tc := typ.Draw(t, "A"), typ.Draw(t, "B"), typ.Draw(t, "C")
				transA, transB := rapid.Bool().Draw(t, "transA"), rapid.Bool().Draw(t, "transB")
				gap := rapid.IntRange(0, 5)
				opts := Options{
					ISA: level, Accumulate: rapid.Bool().Draw(t, "accumulate"),
					Workers: rapid.IntRange(1, 64).Draw(t, "workers"),
					Compute: rapid.SampledFrom([]DType{F32, BF16}).Draw(t, "compute"),
					KC:      rapid.SampledFrom([]int{0, 16, 33}).Draw(t, "kc"),
				}
				if rapid.Bool().Draw(t, "small groups") {
					opts.SharedLimit = 32 << 10
				}
				rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
				a := newOperand(m, k, gap.Draw(t, "gapA"), ta, transA, uniform(rng))
				b := newOperand(k, n, gap.Draw(t, "gapB"), tb, transB, uniform(rng))
				c := newOperand(m, n, gap.Draw(t, "gapC"), tc, false, uniform(rng))
				want, scale := reference(m, n, k, a, b, c, opts.Accumulate)
				args := &Args{A: a.Matrix, B: b.Matrix, C: c.Matrix}
				rounded := opts.Compute == BF16 && (ta == F32 || tb == F32)
				if rapid.Bool().Draw(t, "bias") {
					bias := newOperand(1, n, 0, F32, false, uniform(rng))
					args.Bias = bias.Data
					for i := range want {
						v := bias.get(0, i%n)
						want[i] += v
						scale[i] += math.Abs(v)
					}
				}

				p := NewPlan(m, n, k, ta, tb, tc, transA, transB, opts)
				sequential(t, p, args, rng)
				compare(t, m, n, k, c, want, scale, rounded)
			})
		})
	}
}

// TestLong covers several blocks of K and wide or tall shapes at the default
// block sizes.
func TestLong(t *testing.T) {
	for _, level := range isa.Levels() {
		for _, s := range [][3]int{{13, 1500, 70}, {200, 700, 300}, {1, 1111, 333}, {400, 3, 35}} {
			for flags := range 4 {
				ta, tb := flags&1 != 0, flags&2 != 0
				m, k, n := s[0], s[1], s[2]
				t.Run(fmt.Sprintf("%v/%s", level, name(m, k, n, ta, tb)), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(1, 2))
					a := newOperand(m, k, 0, F32, ta, uniform(rng))
					b := newOperand(k, n, 0, F32, tb, uniform(rng))
					c := newOperand(m, n, 0, F32, false, uniform(rng))
					want, scale := reference(m, n, k, a, b, c, false)
					sequential(t, NewPlan(m, n, k, F32, F32, F32, ta, tb, Options{ISA: level}), &Args{A: a.Matrix, B: b.Matrix, C: c.Matrix}, rng)
					compare(t, m, n, k, c, want, scale, false)
				})
			}
		}
	}
}
