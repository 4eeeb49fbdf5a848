package simd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/snug-ml/snug/internal/isa"
)

// TestAdamW checks several updates against the formulas in float64, all levels
// against portable Go to the bit, and the 16-bit copies.
func TestAdamW(t *testing.T) {
	defer func(l isa.Level) { level = l }(level)
	r := rand.New(rand.NewPCG(17, 18))
	for _, n := range lengths() {
		start := ordinary(r, n)
		grads := [3][]float32{ordinary(r, n), ordinary(r, n), ordinary(r, n)}
		if n > 3 {
			grads[1][2] = 0
			grads[0][3] = 1e-20
		}
		w64, m64, v64 := make([]float64, n), make([]float64, n), make([]float64, n)
		for i, v := range start {
			w64[i] = float64(v)
		}
		coef := func(step int) AdamWCoef {
			c := AdamWCoef{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.1, GradScale: 0.5}
			c.BiasCorr1 = 1 - math.Pow(c.Beta1, float64(step))
			c.BiasCorr2 = 1 - math.Pow(c.Beta2, float64(step))
			return c
		}
		for s, grad := range grads {
			c := coef(s + 1)
			for i := range w64 {
				g := float64(grad[i]) * c.GradScale
				m64[i] = c.Beta1*m64[i] + (1-c.Beta1)*g
				v64[i] = c.Beta2*v64[i] + (1-c.Beta2)*g*g
				w64[i] -= c.LR * c.WeightDecay * w64[i]
				w64[i] -= c.LR * (m64[i] / c.BiasCorr1) / (math.Sqrt(v64[i]/c.BiasCorr2) + c.Eps)
			}
		}
		var want [3][]float32
		for _, level = range Levels() {
			w, checkW := guarded(t, n)
			m, checkM := guarded(t, n)
			v, checkV := guarded(t, n)
			copy(w, start)
			clear(m)
			clear(v)
			for s, grad := range grads {
				AdamW(w, grad, m, v, coef(s+1))
			}
			checkW()
			checkM()
			checkV()
			if level == isa.Portable {
				want = [3][]float32{slices.Clone(w), slices.Clone(m), slices.Clone(v)}
			}
			for j, got := range [3][]float32{w, m, v} {
				if i := differ(got, want[j]); i >= 0 {
					t.Fatalf("%v, n=%d: element %d of w, m, v number %d is %g, want %g", level, n, i, j, got[i], want[j][i])
				}
			}
			wantNear(t, "w", w, 1e-6, func(i int) float64 { return w64[i] })
			wantNear(t, "m", m, 1e-6, func(i int) float64 { return m64[i] })
			wantNear(t, "v", v, 1e-6, func(i int) float64 { return v64[i] })
		}
	}
}
