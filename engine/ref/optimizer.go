package ref

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// adamW: operands w, g, m, v, lr, gscale, t, ok.
func adamW(op graph.AdamW, in []tensor) [][]float64 {
	w, m, v := clone(in[0]), clone(in[2]), clone(in[3])
	lr, gscale, t, ok := in[4].data[0]*op.LRScale, in[5].data[0], in[6].data[0], in[7].data[0]
	if ok != 0 {
		for i := range w {
			g := in[1].data[i] * gscale
			m[i] = op.Beta1*m[i] + (1-op.Beta1)*g
			v[i] = op.Beta2*v[i] + (1-op.Beta2)*g*g
			w[i] -= lr * op.WeightDecay * w[i]
			mHat, vHat := m[i]/(1-math.Pow(op.Beta1, t)), v[i]/(1-math.Pow(op.Beta2, t))
			w[i] -= lr * mHat / (math.Sqrt(vHat) + op.Eps)
		}
	}
	res := [][]float64{w, m, v}
	if op.ZeroGrad {
		res = append(res, make([]float64, len(w)))
	}
	return res
}

func clone(x tensor) []float64 { return append([]float64(nil), x.data...) }

func assign(op graph.Assign, s, x tensor) []float64 {
	y := clone(x)
	if op.Add {
		for i, v := range s.data {
			y[i] += v
		}
	}
	return y
}

func globalNorm(in []tensor) float64 {
	sum := 0.0
	for _, t := range in {
		sum += dot(t.data, t.data)
	}
	return math.Sqrt(sum)
}
