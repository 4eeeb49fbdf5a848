package simd

// NormsBF16 reports whether rows of n bfloat16 elements can be normalized without
// being widened first.
func NormsBF16(n int) bool { return n > 0 && n%lanes == 0 && n <= reduceBlock }

// LayerNormRowBF16 is LayerNormRow on bfloat16, for a length that [NormsBF16] accepts; y
// is rounded once.
func LayerNormRowBF16(y, x []uint16, gamma, beta []float32, eps float32) (mean, rstd float32) {
	checkBF16(len(x))
	same(len(x), len(y), len(gamma))
	same(len(x), len(beta), len(beta))
	n := float32(len(x))
	mean = sumBF16(x) / n
	rstd = invStd(sumSqDevBF16(x, mean)/n, eps)
	normAffineBF16(y, x, gamma, beta, mean, rstd)
	return mean, rstd
}

// LayerNormRowGradBF16 is LayerNormRowGrad on bfloat16, for a length that [NormsBF16]
// accepts. With an addend, dx is rounded, and rounded again after it is added.
func LayerNormRowGradBF16(dx []uint16, dgammaAcc, dbetaAcc []float32, dy, x, addend []uint16, gamma []float32, mean, rstd float32) {
	checkBF16(len(x))
	same(len(x), len(dx), len(dy))
	same(len(x), len(dgammaAcc), len(dbetaAcc))
	same(len(x), len(gamma), len(gamma))
	sg, sgx := gradSumsAllBF16(dgammaAcc, dbetaAcc, dy, x, gamma, mean, rstd)
	n := float32(len(x))
	if addend == nil {
		gradInputGammaBF16(dx, dy, x, gamma, mean, rstd, sg/n, sgx/n)
		return
	}
	same(len(x), len(addend), len(addend))
	gradInputGammaAddBF16(dx, dy, x, addend, gamma, mean, rstd, sg/n, sgx/n)
}

// RMSNormRowBF16 is RMSNormRow on bfloat16, for a length that [NormsBF16] accepts; y is
// rounded once. zeros has as many elements.
func RMSNormRowBF16(y, x []uint16, gamma, zeros []float32, eps float32) (rstd float32) {
	checkBF16(len(x))
	same(len(x), len(y), len(gamma))
	same(len(x), len(zeros), len(zeros))
	rstd = invStd(sumSqDevBF16(x, 0)/float32(len(x)), eps)
	normAffineBF16(y, x, gamma, zeros, 0, rstd)
	return rstd
}

// RMSNormRowGradBF16 is RMSNormRowGrad on bfloat16, with an addend as in
// LayerNormRowGradBF16; the contents of unused do not matter, before or after.
func RMSNormRowGradBF16(dx []uint16, dgammaAcc, unused []float32, dy, x, addend []uint16, gamma []float32, rstd float32) {
	checkBF16(len(x))
	same(len(x), len(dx), len(dy))
	same(len(x), len(dgammaAcc), len(unused))
	same(len(x), len(gamma), len(gamma))
	_, sgx := gradSumsAllBF16(dgammaAcc, unused, dy, x, gamma, 0, rstd)
	if sgx /= float32(len(x)); addend == nil {
		gradInputGammaBF16(dx, dy, x, gamma, 0, rstd, 0, sgx)
		return
	}
	same(len(x), len(addend), len(addend))
	gradInputGammaAddBF16(dx, dy, x, addend, gamma, 0, rstd, 0, sgx)
}

func checkBF16(n int) {
	if !NormsBF16(n) {
		panic("simd: rows of bfloat16 are normalized in multiples of 64 elements, up to 4096")
	}
}

// wide is a row of bfloat16 as float32.
type wide [reduceBlock]float32

func (w *wide) of(x []uint16) []float32 {
	bf16ToF32(w[:len(x)], x)
	return w[:len(x)]
}

func sumBF16Go(x []uint16) float32 {
	var w wide
	return sumGo(w.of(x))
}

func sumSqDevBF16Go(x []uint16, mean float32) float32 {
	var w wide
	return sumSqDevGo(w.of(x), mean)
}

func normAffineBF16Go(y, x []uint16, gamma, beta []float32, mean, rstd float32) {
	var w wide
	row := w.of(x)
	normAffineGo(row, row, gamma, beta, mean, rstd)
	f32ToBF16(y, row)
}

func gradSumsAllBF16Go(dgamma, dbeta []float32, dy, x []uint16, gamma []float32, mean, rstd float32) (sg, sgx float32) {
	var v, w wide
	return gradSumsAllGo(dgamma, dbeta, v.of(dy), w.of(x), gamma, mean, rstd)
}

func gradInputGammaBF16Go(dx, dy, x []uint16, gamma []float32, mean, rstd, c, cx float32) {
	var v, w wide
	row := v.of(dy)
	gradInputGammaGo(row, row, w.of(x), gamma, mean, rstd, c, cx)
	f32ToBF16(dx, row)
}

func gradInputGammaAddBF16Go(dx, dy, x, addend []uint16, gamma []float32, mean, rstd, c, cx float32) {
	var v, w wide
	row := v.of(dy)
	gradInputGammaGo(row, row, w.of(x), gamma, mean, rstd, c, cx)
	roundBF16(row, row)
	add(row, row, w.of(addend))
	f32ToBF16(dx, row)
}
