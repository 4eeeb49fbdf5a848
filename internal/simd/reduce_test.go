package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/internal/isa"
)

// ordinary returns n normal numbers.
func ordinary(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// TestReductionsAgree compares every exact reduction at every level with portable Go, to
// the bit, and with float64.
func TestReductionsAgree(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range append(lengths(), 3*reduceBlock+17) {
		a, b, c := ordinary(r, n), ordinary(r, n), ordinary(r, n)
		all := func() [11]float64 {
			sg, sgx := normGradSums(a, b, nil, 0.1, 1.7)
			gg, ggx := normGradSums(a, b, c, 0.1, 1.7)
			return [11]float64{
				float64(Sum(a)), float64(Dot(a, b)), float64(SumSq(a)), SumF64(a), SumSqF64(a),
				float64(MaxValue(a)), float64(devSq(a, 0.1)),
				float64(sg), float64(sgx), float64(gg), float64(ggx),
			}
		}
		level = isa.Portable
		want := all()
		for _, level = range Levels() {
			if got := all(); got != want {
				t.Fatalf("%v, n=%d: %v, portable %v", level, n, got, want)
			}
		}
		var ref [11]float64
		ref[5] = math.Inf(-1)
		size := 1.0
		for i := range a {
			x, y, z := float64(a[i]), float64(b[i]), float64(c[i])
			xhat := (y - 0.1) * 1.7
			for j, term := range [11]float64{x, x * y, x * x, x, x * x, 0, (x - 0.1) * (x - 0.1), x, x * xhat, x * z, x * z * xhat} {
				if j != 5 {
					ref[j] += term
				}
			}
			ref[5] = max(ref[5], x)
			size += x*x + math.Abs(x*z*xhat)
		}
		for j := range ref {
			if math.Abs(ref[j]-want[j]) > 1e-6*size && ref[j] != want[j] {
				t.Errorf("n=%d: reduction %d is %g, want %g", n, j, want[j], ref[j])
			}
		}
	}
}

// TestSumLong checks that the error of a long sum stays small: sequential
// addition would lose about three digits more.
func TestSumLong(t *testing.T) {
	x := make([]float32, 1<<22)
	Fill(x, 0.1)
	want := float64(float32(0.1)) * float64(len(x))
	eachLevel(t, func(t *testing.T) {
		if got := float64(Sum(x)); math.Abs(got-want) > 1e-5*want {
			t.Errorf("Sum is %g, want %g", got, want)
		}
	})
}

// TestReductionsSpecial puts one special value anywhere in a slice.
func TestReductionsSpecial(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(1, 200).Draw(t, "n")
			at := rapid.IntRange(0, n-1).Draw(t, "at")
			v := rapid.SampledFrom(special).Draw(t, "v")
			x := make([]float32, n+1)
			for i := range x {
				x[i] = float32(i%5) - 7
			}
			x[n] = float32(math.NaN()) // outside
			x = x[:n]
			x[at] = v
			wantMax, argMax, bad := float32(math.Inf(-1)), -1, 0
			for i, w := range x {
				if w > wantMax || w != w && wantMax == wantMax || argMax < 0 {
					wantMax, argMax = w, i
				}
				if math.IsInf(float64(w), 0) || w != w {
					bad++
				}
			}
			if got := MaxValue(x); got != wantMax && (got == got || wantMax == wantMax) {
				t.Errorf("MaxValue is %g, want %g", got, wantMax)
			}
			if got := ArgMax(x); got != argMax {
				t.Errorf("ArgMax is %d, want %d", got, argMax)
			}
			if got := Sum(x); (got-got == 0) != (bad == 0) && math.Abs(float64(v)) < 1e38 {
				t.Errorf("Sum is %g with %d not finite", got, bad)
			}
		})
		if got := MaxValue(nil); got != float32(math.Inf(-1)) {
			t.Errorf("MaxValue(nil) is %g", got)
		}
		if got := ArgMax(nil); got != -1 {
			t.Errorf("ArgMax(nil) is %d", got)
		}
	})
}
