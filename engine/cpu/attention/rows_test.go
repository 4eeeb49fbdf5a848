package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/snug-ml/snug/internal/isa"
)

// ulps returns how many float32 lie between got and the exact value, in units
// of the last place of want.
func ulps(got float32, want float64) float64 {
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

// TestExp checks the exponential of the row kernels against its stated error over
// its whole domain, and its edges against their exact values.
func TestExp(t *testing.T) {
	for _, level := range isa.Levels() {
		k := rowsFor(level)
		low := -87.0 // results below are denormal
		const n = 1 << 20
		x, d := make([]float32, n), make([]float32, n)
		for i := range x {
			x[i] = float32(low * float64(i) / (n - 1))
		}
		in := append([]float32(nil), x...)
		valid, zero := int32(n), float32(0)
		k.grad(1, &x[0], &d[0], 0, &valid, n, 1, &zero, &zero)
		worst := 0.0
		for i, v := range in {
			worst = max(worst, ulps(x[i], math.Exp(float64(v))))
		}
		t.Logf("%v: %.3f ulp", level, worst)
		if worst > 1.5 {
			t.Errorf("%v: exp is off by %.3f units in the last place, stated 1.5", level, worst)
		}
		inf, nan := float32(math.Inf(-1)), float32(math.NaN())
		edge := [16]float32{0, inf, nan, -200, -1e30, -104, -95}
		valid = int32(len(edge))
		k.grad(1, &edge[0], &d[0], 0, &valid, len(edge), 1, &zero, &zero)
		if edge[0] != 1 || edge[1] != 0 || edge[2] == edge[2] || edge[3] != 0 || edge[4] != 0 || edge[5] > 1e-38 || edge[6] > 1e-38 {
			t.Errorf("%v: exp of 0, -Inf, NaN, -200, -1e30, -104, -95 gives %v", level, edge[:7])
		}
	}
}

// TestRows compares every row kernel with the portable one for all lengths up
// to a few vectors, including that padding is cleared and nothing else is written.
func TestRows(t *testing.T) {
	const pitch = 96
	for _, level := range isa.Levels()[1:] {
		k := rowsFor(level)
		for n := range 68 {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			const rows = 3
			width := roundUp(max(n, 1), 16)
			random := func(n int) []float32 {
				x := make([]float32, n)
				for i := range x {
					x[i] = float32(rng.NormFloat64())
				}
				return x
			}
			pair := func(x []float32) (got, want []float32) { return x, append([]float32(nil), x...) }
			same := func(what string, got, want []float32) {
				t.Helper()
				for i, w := range want {
					if !(math.Abs(float64(got[i]-w)) <= 2e-6*(1+math.Abs(float64(w)))) && got[i] != w {
						t.Fatalf("%v: %s of %d elements: [%d] = %v, want %v", level, what, n, i, got[i], w)
					}
				}
			}
			valid := []int32{int32(n), int32(n / 2), 0}
			s1, s2 := pair(random(rows * pitch))
			m1, m2 := pair([]float32{0.3, float32(math.Inf(-1)), float32(math.Inf(-1))})
			l1, l2 := pair([]float32{1.5, 0, 0})
			a1, a2 := pair(random(rows))
			k.softmax(rows, &s1[0], pitch*4, &valid[0], width, 0.7, &m1[0], &l1[0], &a1[0])
			softmaxGo(rows, &s2[0], pitch*4, &valid[0], width, 0.7, &m2[0], &l2[0], &a2[0])
			for i, g := range [][2][]float32{{s1, s2}, {m1, m2}, {l1, l2}, {a1, a2}} {
				same(fmt.Sprintf("softmax %d", i), g[0], g[1])
			}

			s1, s2 = pair(random(rows * pitch))
			d1, d2 := pair(random(rows * pitch))
			lse, delta := []float32{3, 4, 5}, random(rows)
			k.grad(rows, &s1[0], &d1[0], pitch*4, &valid[0], width, 0.7, &lse[0], &delta[0])
			gradGo(rows, &s2[0], &d2[0], pitch*4, &valid[0], width, 0.7, &lse[0], &delta[0])
			same("grad s", s1, s2)
			same("grad d", d1, d2)

			x, y := random(rows*pitch), random(rows*pitch)
			o1, o2 := pair(random(rows))
			k.dot(rows, n, &x[0], 0, &y[0], pitch*4, &o1[0])
			dotGo(rows, n, &x[0], 0, &y[0], pitch*4, &o2[0])
			same("dot", o1, o2)

			x1, x2 := pair(x)
			k.scale(rows, n, &x1[0], pitch*4, &delta[0])
			scaleGo(rows, n, &x2[0], pitch*4, &delta[0])
			same("scale", x1, x2)
			k.mul(n, &x1[0], &y[0])
			mulGo(n, &x2[0], &y[0])
			same("mul", x1, x2)
			segment := make([]int32, pitch)
			for i := range segment {
				segment[i] = int32(rng.IntN(3))
			}
			k.mask(n, &x1[0], &segment[0], 1)
			maskGo(n, &x2[0], &segment[0], 1)
			same("mask", x1, x2)
		}
	}
}
