package simd

import "math"

// LayerNormRow normalizes one row to mean 0 and variance 1, then applies y = xhat * gamma
// + beta (Ba et al., 2016). The variance is the sum of squared deviations from the
// rounded mean, divided by n. gamma and beta may each be nil; y may be nil if only the
// statistics are needed, and may be x.
func LayerNormRow(y, x, gamma, beta []float32, eps float32) (mean, rstd float32) {
	n := float32(len(x))
	mean = Sum(x) / n
	rstd = invStd(devSq(x, mean)/n, eps)
	if y != nil {
		scaleRow(y, x, gamma, beta, mean, rstd)
	}
	return mean, rstd
}

// LayerNormRowGrad writes dx and adds to dgamma and dbeta (each may be nil, as
// may gamma) the gradients of one row, given the statistics of the forward
// pass. With g = dy*gamma and xhat = (x-mean)*rstd:
//
//	dx = rstd * (g - mean(g) - xhat * mean(g*xhat))
//	dgamma += dy * xhat,  dbeta += dy
//
// dx may be dy or x.
func LayerNormRowGrad(dx, dgammaAcc, dbetaAcc, dy, x, gamma []float32, mean, rstd float32) {
	same(len(dx), len(dy), len(x))
	var sg, sgx float32
	if gamma != nil && dgammaAcc != nil && dbetaAcc != nil && len(x) <= reduceBlock {
		same(len(x), len(gamma), len(dgammaAcc))
		same(len(x), len(dbetaAcc), len(dbetaAcc))
		sg, sgx = gradSumsAll(dgammaAcc, dbetaAcc, dy, x, gamma, mean, rstd) // one pass for three
	} else {
		sg, sgx = normGradSums(dy, x, gamma, mean, rstd)
		addGammaGrad(dgammaAcc, dy, x, mean, rstd)
		if dbetaAcc != nil {
			Add(dbetaAcc, dbetaAcc, dy)
		}
	}
	n := float32(len(x))
	normGrad(dx, dy, x, gamma, mean, rstd, sg/n, sgx/n)
}

// RMSNormRow writes y = x * rstd * gamma with rstd = 1/sqrt(mean(x^2) + eps) (Zhang and
// Sennrich, 2019). gamma may be nil; y may be nil if only rstd is needed, and may be x.
func RMSNormRow(y, x, gamma []float32, eps float32) (rstd float32) {
	rstd = invStd(SumSq(x)/float32(len(x)), eps)
	if y != nil {
		scaleRow(y, x, gamma, nil, 0, rstd)
	}
	return rstd
}

// RMSNormRowGrad writes dx and adds to dgamma (nil allowed, as for gamma) the
// gradients of one row. With g = dy*gamma and xhat = x*rstd:
//
//	dx = rstd * (g - xhat * mean(g*xhat)),  dgamma += dy * xhat
//
// dx may be dy or x.
func RMSNormRowGrad(dx, dgammaAcc, dy, x, gamma []float32, rstd float32) {
	same(len(dx), len(dy), len(x))
	_, sgx := normGradSums(dy, x, gamma, 0, rstd)
	addGammaGrad(dgammaAcc, dy, x, 0, rstd)
	normGrad(dx, dy, x, gamma, 0, rstd, 0, sgx/float32(len(x)))
}

// invStd returns 1/sqrt(variance + eps), rounded once.
func invStd(variance, eps float32) float32 {
	return float32(1 / math.Sqrt(float64(variance)+float64(eps)))
}

// devSq returns the sum of (x - mean)^2.
func devSq(x []float32, mean float32) float32 {
	if len(x) > reduceBlock {
		h := half(len(x))
		return devSq(x[:h], mean) + devSq(x[h:], mean)
	}
	return sumSqDev(x, mean)
}

// scaleRow writes (x - mean) * rstd * gamma + beta.
func scaleRow(y, x, gamma, beta []float32, mean, rstd float32) {
	same(len(y), len(x), len(x))
	switch {
	case gamma != nil && beta != nil:
		same(len(y), len(gamma), len(beta))
		normAffine(y, x, gamma, beta, mean, rstd)
		return
	case gamma != nil:
		same(len(y), len(gamma), len(gamma))
		normGamma(y, x, gamma, mean, rstd)
	default:
		norm(y, x, mean, rstd)
	}
	if beta != nil {
		Add(y, y, beta)
	}
}

// normGradSums returns the sums of g and of g * xhat.
func normGradSums(dy, x, gamma []float32, mean, rstd float32) (sg, sgx float32) {
	if gamma != nil {
		same(len(x), len(gamma), len(dy))
	}
	if len(x) > reduceBlock {
		h := half(len(x))
		var lo, hi []float32
		if gamma != nil {
			lo, hi = gamma[:h], gamma[h:]
		}
		a, ax := normGradSums(dy[:h], x[:h], lo, mean, rstd)
		b, bx := normGradSums(dy[h:], x[h:], hi, mean, rstd)
		return a + b, ax + bx
	}
	if gamma != nil {
		return gradSumsGamma(dy, x, gamma, mean, rstd)
	}
	return gradSums(dy, x, mean, rstd)
}

// addGammaGrad adds dy * xhat to acc, unless acc is nil.
func addGammaGrad(acc, dy, x []float32, mean, rstd float32) {
	if acc != nil {
		same(len(acc), len(dy), len(x))
		gammaGrad(acc, dy, x, mean, rstd)
	}
}

// normGrad writes rstd * (g - c - xhat * cx).
func normGrad(dx, dy, x, gamma []float32, mean, rstd, c, cx float32) {
	if gamma != nil {
		gradInputGamma(dx, dy, x, gamma, mean, rstd, c, cx)
	} else {
		gradInput(dx, dy, x, mean, rstd, c, cx)
	}
}

func sumSqDevGo(x []float32, mean float32) float32 {
	var acc [lanes]float32
	for i, v := range x {
		d := v - mean
		acc[i%lanes] += float32(d * d)
	}
	return tree(&acc)
}

func normGo(y, x []float32, mean, rstd float32) {
	for i, v := range x {
		y[i] = (v - mean) * rstd
	}
}

func normGammaGo(y, x, gamma []float32, mean, rstd float32) {
	for i, v := range x {
		y[i] = (v - mean) * rstd * gamma[i]
	}
}

func normAffineGo(y, x, gamma, beta []float32, mean, rstd float32) {
	for i, v := range x {
		y[i] = float32((v-mean)*rstd*gamma[i]) + beta[i]
	}
}

func gradSumsGo(dy, x []float32, mean, rstd float32) (sg, sgx float32) {
	var a, b [lanes]float32
	for i, g := range dy {
		a[i%lanes] += g
		b[i%lanes] += float32(g * ((x[i] - mean) * rstd))
	}
	return tree(&a), tree(&b)
}

func gradSumsGammaGo(dy, x, gamma []float32, mean, rstd float32) (sg, sgx float32) {
	var a, b [lanes]float32
	for i, d := range dy {
		g := float32(d * gamma[i])
		a[i%lanes] += g
		b[i%lanes] += float32(g * ((x[i] - mean) * rstd))
	}
	return tree(&a), tree(&b)
}

func gradSumsAllGo(dgamma, dbeta, dy, x, gamma []float32, mean, rstd float32) (sg, sgx float32) {
	gammaGradGo(dgamma, dy, x, mean, rstd)
	addGo(dbeta, dbeta, dy)
	return gradSumsGammaGo(dy, x, gamma, mean, rstd)
}

func gammaGradGo(acc, dy, x []float32, mean, rstd float32) {
	for i, g := range dy {
		acc[i] += float32(g * ((x[i] - mean) * rstd))
	}
}

func gradInputGo(dx, dy, x []float32, mean, rstd, c, cx float32) {
	for i, g := range dy {
		xhat := (x[i] - mean) * rstd
		dx[i] = rstd * ((g - c) - float32(xhat*cx))
	}
}

func gradInputGammaGo(dx, dy, x, gamma []float32, mean, rstd, c, cx float32) {
	for i, d := range dy {
		g := float32(d * gamma[i])
		xhat := (x[i] - mean) * rstd
		dx[i] = rstd * ((g - c) - float32(xhat*cx))
	}
}
