package ref

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// rowsOf are the rows of x: all but the last dimension joined.
func rowsOf(x tensor) [][]float64 {
	d := x.Shape.Last()
	rows := make([][]float64, x.Shape.Rows())
	for r := range rows {
		rows[r] = x.data[r*d : (r+1)*d]
	}
	return rows
}

func layerNorm(op graph.LayerNorm, in []tensor) [][]float64 {
	gamma := in[1].data
	var y, means, rstds []float64
	for _, x := range rowsOf(in[0]) {
		n := float64(len(x))
		mean := 0.0
		if !op.RMS {
			for _, v := range x {
				mean += v / n
			}
		}
		variance := 0.0
		for _, v := range x {
			variance += (v - mean) * (v - mean) / n
		}
		rstd := 1 / math.Sqrt(variance+op.Eps)
		for i, v := range x {
			o := (v - mean) * rstd * gamma[i]
			if !op.RMS {
				o += in[2].data[i]
			}
			y = append(y, o)
		}
		means, rstds = append(means, mean), append(rstds, rstd)
	}
	return [][]float64{y, means, rstds}
}

// layerNormGrad: with h = (x-mean)*rstd and g = dy*gamma,
// dx = rstd * (g - mean(g) - h*mean(g*h)), without the mean(g) term for RMS;
// dgamma = sum over rows of dy*h, dbeta = sum over rows of dy. A sixth operand
// is added to the rounded dx.
func (m *machine) layerNormGrad(op graph.LayerNormGrad, in []tensor) [][]float64 {
	dy, x, gamma, mean, rstd := rowsOf(in[0]), rowsOf(in[1]), in[2].data, in[3].data, in[4].data
	d := len(gamma)
	dgamma, dbeta := make([]float64, d), make([]float64, d)
	var dx []float64
	for r := range x {
		h, g := make([]float64, d), make([]float64, d)
		var gSum, ghSum float64
		for i := range d {
			h[i] = (x[r][i] - mean[r]) * rstd[r]
			g[i] = dy[r][i] * gamma[i]
			gSum += g[i]
			ghSum += g[i] * h[i]
			dgamma[i] += dy[r][i] * h[i]
			dbeta[i] += dy[r][i]
		}
		if op.RMS {
			gSum = 0
		}
		for i := range d {
			dx = append(dx, rstd[r]*(g[i]-gSum/float64(d)-h[i]*ghSum/float64(d)))
		}
	}
	if len(in) > 5 {
		dx = m.round(dx, in[1].DType)
		for i, v := range in[5].data {
			dx[i] += v
		}
	}
	if op.RMS {
		return [][]float64{dx, dgamma}
	}
	return [][]float64{dx, dgamma, dbeta}
}

// logSumExp is ln(sum e^x): -Inf for nothing, +Inf where an element is.
func logSumExp(x []float64) float64 {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, v)
	}
	if math.IsInf(top, 0) {
		return top
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(v - top)
	}
	return top + math.Log(sum)
}

func softmax(x tensor) []float64 {
	y := make([]float64, 0, len(x.data))
	for _, r := range rowsOf(x) {
		lse := logSumExp(r)
		for _, v := range r {
			y = append(y, math.Exp(v-lse))
		}
	}
	return y
}

func softmaxGrad(y, dy tensor) []float64 {
	dx := make([]float64, 0, len(y.data))
	dys := rowsOf(dy)
	for r, row := range rowsOf(y) {
		dot := 0.0
		for i, v := range row {
			dot += v * dys[r][i]
		}
		for i, v := range row {
			dx = append(dx, v*(dys[r][i]-dot))
		}
	}
	return dx
}
