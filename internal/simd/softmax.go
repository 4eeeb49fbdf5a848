package simd

import "math"

// SoftmaxRow writes e^(x-max) / sum. A row of -Inf gives NaN: the function has
// no value there, and callers that mask whole rows must skip them.
func SoftmaxRow(dst, x []float32) {
	same(len(dst), len(x), len(x))
	if len(x) == 0 {
		return
	}
	total := ExpSubSum(dst, x, maxValue(x))
	mulScalar(dst, dst, 1/total)
}

// SoftmaxRowGrad writes y * (dy - sum(y*dy)), y being the forward result.
func SoftmaxRowGrad(dx, y, dy []float32) {
	same(len(dx), len(y), len(dy))
	subMul(dx, dy, y, Dot(y, dy))
}

// LogSumExpRow returns log(sum e^x): -Inf for an empty row or one of -Inf, +Inf if an
// element is +Inf.
func LogSumExpRow(x []float32) float32 {
	m := maxValue(x)
	if math.IsInf(float64(m), 0) {
		return m
	}
	return m + float32(math.Log(float64(expSum(x, m))))
}

// ExpSubSum writes e^(x-m) and returns the sum of what it wrote: the middle of a softmax,
// for callers that already know the maximum m.
func ExpSubSum(dst, x []float32, m float32) float32 {
	same(len(dst), len(x), len(x))
	if len(x) > reduceBlock {
		h := half(len(x))
		return ExpSubSum(dst[:h], x[:h], m) + ExpSubSum(dst[h:], x[h:], m)
	}
	return expSubSum(dst, x, m)
}

// expSum is ExpSubSum without writing.
func expSum(x []float32, m float32) float32 {
	if len(x) > reduceBlock {
		h := half(len(x))
		return expSum(x[:h], m) + expSum(x[h:], m)
	}
	return expSubSumOnly(x, m)
}

// CrossEntropyRow returns the loss -log softmax(x)[target] of a row of logits,
// and the row's log-sum-exp, which CrossEntropyRowGrad needs.
func CrossEntropyRow(x []float32, target int) (loss, lse float32) {
	lse = LogSumExpRow(x)
	return lse - x[target], lse
}

// CrossEntropyRowGrad writes scale * (e^(x-lse) - onehot(target)), the gradient
// of scale * loss. dx may be x.
func CrossEntropyRowGrad(dx, x []float32, lse float32, target int, scale float32) {
	same(len(dx), len(x), len(x))
	expSubScale(dx, x, lse, scale)
	dx[target] -= scale
}

func expSubSumGo(dst, x []float32, m float32) float32 {
	var acc [lanes]float32
	for i, v := range x {
		e := float32(math.Exp(float64(v - m)))
		dst[i] = e
		acc[i%lanes] += e
	}
	return tree(&acc)
}

func expSubSumOnlyGo(x []float32, m float32) float32 {
	var acc [lanes]float32
	for i, v := range x {
		acc[i%lanes] += float32(math.Exp(float64(v - m)))
	}
	return tree(&acc)
}

func expSubScaleGo(dst, x []float32, m, scale float32) {
	for i, v := range x {
		dst[i] = scale * float32(math.Exp(float64(v-m)))
	}
}

// subMulGo writes (a - s) * b.
func subMulGo(dst, a, b []float32, s float32) {
	for i, v := range a {
		dst[i] = (v - s) * b[i]
	}
}
