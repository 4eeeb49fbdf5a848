package simd

// LionCoef are the scalars of one Lion update. GradScale multiplies the gradient
// before it is used.
type LionCoef struct {
	LR, Beta1, Beta2, WeightDecay float64
	GradScale                     float64
}

// The scalars a kernel needs, each computed in float64 and rounded once.
const (
	lionGradScale = iota // GradScale
	lionDecay            // 1 - LR*WeightDecay
	lionOneMinus1        // 1 - Beta1
	lionOneMinus2        // 1 - Beta2
	lionStep             // -LR
	lionScalars
)

// Lion updates weights w and the moment m in place from gradient g (Chen et al. 2023):
//
//	g = g * GradScale
//	w = w * (1 - LR*WeightDecay)
//	w = w - LR * sign(m + (1-Beta1) * (g - m))
//	m = m + (1-Beta2) * (g - m)
func Lion(w, g, m []float32, c LionCoef) {
	same(len(w), len(g), len(m))
	s := [8]float32{
		lionGradScale: float32(c.GradScale), lionDecay: float32(1 - c.LR*c.WeightDecay),
		lionOneMinus1: float32(1 - c.Beta1), lionOneMinus2: float32(1 - c.Beta2), lionStep: float32(-c.LR),
	}
	lion(w, g, m, &s)
}

func lionGo(w, g, m []float32, s *[8]float32) {
	for i := range w {
		d := g[i]*s[lionGradScale] - m[i]
		p := float32(w[i] * s[lionDecay])
		switch c := m[i] + float32(s[lionOneMinus1]*d); {
		case c > 0:
			p += s[lionStep]
		case c < 0:
			p -= s[lionStep]
		}
		w[i] = p
		m[i] += float32(s[lionOneMinus2] * d)
	}
}
