package simd

import "math"

// AdamWCoef are the scalars of one AdamW update. BiasCorr1 is 1 - Beta1^t and
// BiasCorr2 is 1 - Beta2^t for update t (from 1). GradScale multiplies the
// gradient before it is used (1/loss scale, clipping factor).
type AdamWCoef struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	BiasCorr1, BiasCorr2               float64
	GradScale                          float64
}

// The scalars that a kernel needs, each computed in float64 and rounded once, as PyTorch
// does.
const (
	adamGradScale = iota // GradScale
	adamDecay            // 1 - LR*WeightDecay
	adamOneMinus1        // 1 - Beta1
	adamBeta2            // Beta2
	adamOneMinus2        // 1 - Beta2
	adamRootCorr2        // sqrt(BiasCorr2)
	adamEps              // Eps
	adamStep             // -LR / BiasCorr1
	adamScalars
)

func (c *AdamWCoef) scalars() [adamScalars]float32 {
	return [adamScalars]float32{
		adamGradScale: float32(c.GradScale),
		adamDecay:     float32(1 - c.LR*c.WeightDecay),
		adamOneMinus1: float32(1 - c.Beta1),
		adamBeta2:     float32(c.Beta2),
		adamOneMinus2: float32(1 - c.Beta2),
		adamRootCorr2: float32(math.Sqrt(c.BiasCorr2)),
		adamEps:       float32(c.Eps),
		adamStep:      float32(-c.LR / c.BiasCorr1),
	}
}

// AdamW updates weights w and moments m, v in place from gradient g, in the
// order of PyTorch's AdamW (Loshchilov and Hutter, 2019):
//
//	g  = g * GradScale
//	w  = w * (1 - LR*WeightDecay)
//	m  = m + (1-Beta1) * (g - m)
//	v  = v*Beta2 + ((1-Beta2)*g)*g
//	w  = w + (-LR/BiasCorr1 * m) / (sqrt(v)/sqrt(BiasCorr2) + Eps)
func AdamW(w, g, m, v []float32, c AdamWCoef) {
	same(len(w), len(g), len(g))
	same(len(w), len(m), len(v))
	s := c.scalars()
	adamw(w, g, m, v, &s)
}

func adamwGo(w, g, m, v []float32, s *[8]float32) {
	for i := range w {
		adamwOne(&w[i], g[i], &m[i], &v[i], s)
	}
}

func adamwOne(w *float32, g float32, m, v *float32, s *[adamScalars]float32) {
	g *= s[adamGradScale]
	p := float32(*w * s[adamDecay])
	mom := *m + float32(s[adamOneMinus1]*(g-*m))
	sq := float32(*v*s[adamBeta2]) + float32(float32(s[adamOneMinus2]*g)*g)
	denom := sqrt32(sq)/s[adamRootCorr2] + s[adamEps]
	*m, *v = mom, sq
	*w = p + s[adamStep]*mom/denom
}
