package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/snug-ml/snug/internal/isa"
)

// near reports whether got is within tol*(1+|want|) of want.
func near(got, want, tol float64) bool {
	return got == want || math.Abs(got-want) <= tol*(1+math.Abs(want))
}

// wantNear fails unless all elements are near; want is a function of the index.
func wantNear(t *testing.T, name string, got []float32, tol float64, want func(i int) float64) {
	t.Helper()
	for i, v := range got {
		if !near(float64(v), want(i), tol) {
			t.Fatalf("%s, n=%d: element %d is %g, want %g", name, len(got), i, v, want(i))
		}
	}
}

// rowLengths are the lengths of the row tests.
func rowLengths() []int { return []int{1, 2, 7, 15, 16, 17, 63, 64, 65, 130, 384, 1000, 4096, 9001} }

// TestSoftmaxRows checks softmax, log-sum-exp, cross entropy and their
// gradients against float64.
func TestSoftmaxRows(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 8))
		for _, n := range rowLengths() {
			x := ordinary(r, n)
			for i := range x {
				x[i] = 4*x[i] + 50
			}
			total, top := 0.0, float64(slices.Max(x))
			for _, v := range x {
				total += math.Exp(float64(v) - top)
			}
			lse := top + math.Log(total)
			p := func(i int) float64 { return math.Exp(float64(x[i]) - lse) }

			y := make([]float32, n)
			SoftmaxRow(y, x)
			wantNear(t, "SoftmaxRow", y, 2e-6, p)
			if got := LogSumExpRow(x); !near(float64(got), lse, 2e-7) {
				t.Errorf("LogSumExpRow, n=%d: %g, want %g", n, got, lse)
			}
			target := r.IntN(n)
			loss, gotLSE := CrossEntropyRow(x, target)
			if !near(float64(loss), lse-float64(x[target]), 1e-5) || !near(float64(gotLSE), lse, 2e-7) {
				t.Errorf("CrossEntropyRow, n=%d: %g, %g, want %g, %g", n, loss, gotLSE, lse-float64(x[target]), lse)
			}
			dx := slices.Clone(x)
			CrossEntropyRowGrad(dx, dx, gotLSE, target, 0.25)
			wantNear(t, "CrossEntropyRowGrad", dx, 2e-6, func(i int) float64 {
				if i == target {
					return 0.25 * (p(i) - 1)
				}
				return 0.25 * p(i)
			})

			SoftmaxRow(x, x)
			if i := differ(x, y); i >= 0 {
				t.Errorf("SoftmaxRow in place: element %d is %g, want %g", i, x[i], y[i])
			}
		}
	})
}

func TestSoftmaxRowGrad(t *testing.T) {
	eachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(9, 10))
		for _, n := range rowLengths() {
			y, dy := ordinary(r, n), ordinary(r, n)
			SoftmaxRow(y, y)
			dot := 0.0
			for i := range y {
				dot += float64(y[i]) * float64(dy[i])
			}
			dx := make([]float32, n)
			SoftmaxRowGrad(dx, y, dy)
			wantNear(t, "SoftmaxRowGrad", dx, 1e-6, func(i int) float64 {
				return float64(y[i]) * (float64(dy[i]) - dot)
			})
			SoftmaxRowGrad(dy, y, dy)
			if i := differ(dx, dy); i >= 0 {
				t.Errorf("SoftmaxRowGrad in place differs at %d", i)
			}
		}
	})
}

// TestSoftmaxSpecial checks rows with infinities and NaN.
func TestSoftmaxSpecial(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	eachLevel(t, func(t *testing.T) {
		y := make([]float32, 3)
		SoftmaxRow(y, []float32{1, -inf, 1})
		if y[0] != 0.5 || y[1] != 0 || y[2] != 0.5 {
			t.Errorf("SoftmaxRow with a masked element is %v, want [0.5 0 0.5]", y)
		}
		for _, c := range []struct {
			x    []float32
			want float32
		}{
			{nil, -inf}, {[]float32{-inf, -inf}, -inf}, {[]float32{inf, 0}, inf}, {[]float32{nan, 0}, nan}, {[]float32{-inf, 3}, 3},
		} {
			if got := LogSumExpRow(c.x); !bitsEqual(got, c.want) {
				t.Errorf("LogSumExpRow(%v) is %g, want %g", c.x, got, c.want)
			}
		}
		SoftmaxRow(y, []float32{1, nan, 1})
		if y[0] == y[0] {
			t.Errorf("SoftmaxRow with a NaN is %v, want NaN", y)
		}
		SoftmaxRow(nil, nil)
	})
}

// TestNorms checks the norms and their gradients against float64, with and
// without gamma and beta.
func TestNorms(t *testing.T) {
	const eps = 1e-5
	eachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(11, 12))
		for _, n := range rowLengths() {
			for variant := range 4 {
				x, dy := ordinary(r, n), ordinary(r, n)
				AddScalar(x, x, 3)
				var gamma, beta []float32
				if variant&1 != 0 {
					gamma = ordinary(r, n)
				}
				if variant&2 != 0 {
					beta = ordinary(r, n)
				}
				checkNorm(t, x, dy, gamma, beta, false, eps)
				checkNorm(t, x, dy, gamma, nil, true, eps)
			}
		}
	})
}

// checkNorm compares one row with the formulas; rms chooses the norm without mean.
func checkNorm(t *testing.T, x, dy, gamma, beta []float32, rms bool, eps float32) {
	t.Helper()
	n := len(x)
	at := func(s []float32, i int, otherwise float64) float64 {
		if s == nil {
			return otherwise
		}
		return float64(s[i])
	}
	mean, variance := 0.0, 0.0
	if !rms {
		for _, v := range x {
			mean += float64(v) / float64(n)
		}
	}
	for _, v := range x {
		variance += (float64(v) - mean) * (float64(v) - mean) / float64(n)
	}
	rstd := 1 / math.Sqrt(variance+float64(eps))
	xhat := func(i int) float64 { return (float64(x[i]) - mean) * rstd }
	g := func(i int) float64 { return float64(dy[i]) * at(gamma, i, 1) }
	var meanG, meanGX float64
	for i := range x {
		meanG += g(i) / float64(n)
		meanGX += g(i) * xhat(i) / float64(n)
	}
	if rms {
		meanG = 0
	}

	name, y := "LayerNorm", make([]float32, n)
	dx, dgamma, dbeta := slices.Clone(dy), make([]float32, n), make([]float32, n)
	Fill(dgamma, 2)
	Fill(dbeta, 2)
	var gotMean, gotStd, onlyStd float32
	if rms {
		name = "RMSNorm"
		gotStd = RMSNormRow(y, x, gamma, eps)
		onlyStd = RMSNormRow(nil, x, gamma, eps)
		RMSNormRowGrad(dx, dgamma, dx, x, gamma, gotStd)
	} else {
		gotMean, gotStd = LayerNormRow(y, x, gamma, beta, eps)
		_, onlyStd = LayerNormRow(nil, x, gamma, beta, eps)
		LayerNormRowGrad(dx, dgamma, dbeta, dx, x, gamma, gotMean, gotStd)
		wantNear(t, name+" dbeta", dbeta, 1e-6, func(i int) float64 { return 2 + float64(dy[i]) })
	}
	// A row of one or two elements may have next to no variance: rstd is then
	// as uncertain as the mean is.
	tol := 2e-6 * max(1, rstd)
	if !near(float64(gotMean), mean, 1e-6) || !near(float64(gotStd), rstd, tol) || onlyStd != gotStd {
		t.Fatalf("%s, n=%d: mean %g, rstd %g, statistics only %g; want %g, %g", name, n, gotMean, gotStd, onlyStd, mean, rstd)
	}
	wantNear(t, name, y, tol, func(i int) float64 { return xhat(i)*at(gamma, i, 1) + at(beta, i, 0) })
	wantNear(t, name+" dx", dx, 4*tol*max(1, rstd), func(i int) float64 { return rstd * (g(i) - meanG - xhat(i)*meanGX) })
	wantNear(t, name+" dgamma", dgamma, tol, func(i int) float64 { return 2 + float64(dy[i])*xhat(i) })

	// Without accumulators dx is the same.
	again := make([]float32, n)
	if rms {
		RMSNormRowGrad(again, nil, dy, x, gamma, gotStd)
	} else {
		LayerNormRowGrad(again, nil, nil, dy, x, gamma, gotMean, gotStd)
	}
	if i := differ(again, dx); i >= 0 {
		t.Fatalf("%s, n=%d: dx without accumulators differs at %d", name, n, i)
	}
}

// TestNormLevels checks that the norms, forward and backward, are the same at
// every level, to the bit.
func TestNormLevels(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	r := rand.New(rand.NewPCG(13, 14))
	for _, n := range rowLengths() {
		x, dy, gamma, beta := ordinary(r, n), ordinary(r, n), ordinary(r, n), ordinary(r, n)
		run := func() []float32 {
			out := make([]float32, 4*n)
			mean, rstd := LayerNormRow(out[:n], x, gamma, beta, 1e-5)
			LayerNormRowGrad(out[n:2*n], out[2*n:3*n], out[3*n:], dy, x, gamma, mean, rstd)
			return append(out, mean, rstd)
		}
		level = isa.Portable
		want := run()
		for _, level = range Levels() {
			if i := differ(run(), want); i >= 0 {
				t.Fatalf("%v, n=%d: differs from portable Go at %d", level, n, i)
			}
		}
	}
}

// TestRotary checks the rotation against float64, the copied
// rest, that inverse undoes, and that all levels agree.
func TestRotary(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	r := rand.New(rand.NewPCG(15, 16))
	for _, half := range append(lengths()[:70], 128) {
		for _, rest := range []int{0, 5} {
			n := 2*half + rest
			x, cos, sin := ordinary(r, n), make([]float32, half+3), make([]float32, half+3)
			for i := range cos {
				s, c := math.Sincos(r.Float64() * 6)
				cos[i], sin[i] = float32(c), float32(s)
			}
			want := make([]float32, n)
			level = isa.Portable
			RotaryRow(want, x, cos, sin, half, false)
			for i := range half {
				c, s := float64(cos[i]), float64(sin[i])
				a, b := float64(x[i]), float64(x[i+half])
				if !near(float64(want[i]), a*c-b*s, 1e-6) || !near(float64(want[i+half]), b*c+a*s, 1e-6) {
					t.Fatalf("half=%d: pair %d is wrong", half, i)
				}
			}
			if i := differ(want[2*half:], x[2*half:]); i >= 0 {
				t.Fatalf("half=%d: rest not copied at %d", half, i)
			}
			for _, level = range Levels() {
				got, check := guarded(t, n)
				RotaryRow(got, x, cos, sin, half, false)
				check()
				if i := differ(got, want); i >= 0 {
					t.Fatalf("%v, half=%d: element %d is %g, want %g", level, half, i, got[i], want[i])
				}
				RotaryRow(got, got, cos, sin, half, true)
				wantNear(t, "there and back", got, 1e-6, func(i int) float64 { return float64(x[i]) })
			}
		}
	}
}
