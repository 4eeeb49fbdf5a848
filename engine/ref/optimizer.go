package ref

import (
	"math"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/codebook"
)

// adamW: operands w, g, m, v, lr, gscale, t, ok.
func adamW(op graph.AdamW, in []tensor) [][]float64 {
	w, m, v := clone(in[0]), clone(in[2]), clone(in[3])
	scalars := in[len(in)-4:]
	lr, gscale, t, ok := scalars[0].data[0]*op.LRScale, scalars[1].data[0], scalars[2].data[0], scalars[3].data[0]
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
	if op.Rounded != graph.Invalid {
		r := clone(in[4])
		if ok != 0 {
			copy(r, w)
		}
		res = append(res, r)
	}
	if op.ZeroGrad {
		res = append(res, make([]float64, len(w)))
	}
	return res
}

// momentBits are the random bits of a second moment. In the middle of their range it is
// rounded to nearest, as bitsandbytes does; a test sets them so.
var momentBits = randomBits

// adamW8bit: operands w, g, m, v, their scales, lr, gscale, t, ok. As in the kernels,
// moments are float32 until they are rounded to codes.
func adamW8bit(op graph.AdamW8bit, in []tensor) [][]float64 {
	states := [][]float64{clone(in[2]), clone(in[3]), clone(in[4]), clone(in[5])}
	books := [2]*codebook.Book{&codebook.Signed.Book, &codebook.Unsigned.Book}
	full := slices.Concat(in[:2], []tensor{in[2], in[3]}, in[6:])
	for k, book := range books {
		full[2+k].data = make([]float64, len(in[0].data))
		for i, code := range states[k] {
			full[2+k].data[i] = float64(book.Values[int(code)]) * states[2+k][i/graph.MomentBlock]
		}
	}
	y := adamW(op.AdamW(), full)
	if in[9].data[0] != 0 {
		t := uint32(in[8].data[0]) | graph.SecondMoments
		for k := range books {
			for b := range states[2+k] {
				at, to := b*graph.MomentBlock, min((b+1)*graph.MomentBlock, len(states[k]))
				x, codes, random := make([]float32, to-at), make([]uint8, to-at), make([]uint16, to-at)
				for i := range x {
					x[i], random[i] = float32(y[1+k][at+i]), momentBits(op.Round, at+i, t)
				}
				if k == 0 {
					states[2][b] = float64(codebook.Signed.Encode(codes, x))
				} else {
					states[3][b] = float64(codebook.Unsigned.Encode(codes, x, random))
				}
				for i, code := range codes {
					states[k][at+i] = float64(code)
				}
			}
		}
	}
	return append(append([][]float64{y[0]}, states...), y[3:]...)
}

// lion: operands w, g, m, lr, gscale, (t,) ok.
func lion(op graph.Lion, in []tensor) [][]float64 {
	w, m := clone(in[0]), clone(in[2])
	lr, gscale := in[3].data[0]*op.LRScale, in[4].data[0]
	if in[len(in)-1].data[0] != 0 {
		for i := range w {
			g := in[1].data[i] * gscale
			step := 0.0
			if c := op.Beta1*m[i] + (1-op.Beta1)*g; c != 0 {
				step = math.Copysign(1, c)
			}
			w[i] -= lr*op.WeightDecay*w[i] + lr*step
			m[i] = op.Beta2*m[i] + (1-op.Beta2)*g
		}
	}
	res := [][]float64{w, m}
	if op.ZeroGrad {
		res = append(res, make([]float64, len(w)))
	}
	return res
}

// adafactor: operands w, g, rows and columns or v, lr, gscale, t, ok.
func adafactor(op graph.Adafactor, in []tensor) [][]float64 {
	scalars := in[len(in)-4:]
	lr, gscale, t, ok := scalars[0].data[0]*op.LRScale, scalars[1].data[0], scalars[2].data[0], scalars[3].data[0]
	w := clone(in[0])
	cols := clone(in[len(in)-5]) // or v
	rows := []float64{1}
	if op.Factored {
		rows = clone(in[2])
	}
	if ok != 0 {
		batch, m, n := op.Matrices(in[0].Shape)
		g := func(i int) float64 { return in[1].data[i] * gscale }
		rest := math.Pow(t, -op.Decay) // 1-b
		x := make([]float64, len(w))
		for k := range batch {
			at := k * m * n
			for i := 0; op.Factored && i < m; i++ {
				s := 0.0
				for j := range n {
					s += math.Pow(g(at+i*n+j), 2) / float64(n)
				}
				rows[k*m+i] = (1-rest)*rows[k*m+i] + rest*(s+op.Eps)
			}
			for j := range n {
				s := 0.0
				for i := range m {
					s += math.Pow(g(at+i*n+j), 2) / float64(m)
				}
				cols[k*n+j] = (1-rest)*cols[k*n+j] + rest*(s+op.Eps)
			}
			mean := 0.0
			for _, r := range rows[k*m : k*m+m] {
				mean += r / float64(m)
			}
			for i := range m {
				for j := range n {
					x[at+i*n+j] = g(at+i*n+j) / math.Sqrt(rows[k*m+i]*cols[k*n+j]/mean)
				}
			}
		}
		bound := max(1, math.Sqrt(dot(x, x)/float64(len(x)))/op.Clip)
		for i := range w {
			w[i] -= lr*op.WeightDecay*w[i] + lr*x[i]/bound
		}
	}
	res := [][]float64{w}
	if op.Factored {
		res = append(res, rows)
	}
	res = append(res, cols)
	if op.ZeroGrad {
		res = append(res, make([]float64, len(w)))
	}
	return res
}

// sgd: operands w, g, lr, gscale, (t,) ok.
func sgd(op graph.SGD, in []tensor) [][]float64 {
	w := clone(in[0])
	lr, gscale := in[2].data[0]*op.LRScale, in[3].data[0]
	if in[len(in)-1].data[0] != 0 {
		for i := range w {
			w[i] -= lr*op.WeightDecay*w[i] + lr*in[1].data[i]*gscale
		}
	}
	res := [][]float64{w}
	if op.ZeroGrad {
		res = append(res, make([]float64, len(w)))
	}
	return res
}

func clone(x tensor) []float64 { return append([]float64(nil), x.data...) }

// assign: operands the state, the new value, and with stochastic rounding the run counter.
func assign(op graph.Assign, in []tensor) []float64 {
	y := clone(in[1])
	if op.Add {
		for i, v := range in[0].data {
			y[i] += v
		}
	}
	if op.Round.Mode == graph.Stochastic {
		for i, x := range y {
			y[i] = stochastic(float32(x), op.Round, i, uint32(int32(in[2].data[0])))
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
