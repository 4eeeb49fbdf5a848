package main

import "github.com/snug-ml/snug/tools/asm/sets"

// A kernel is a function of package simd that has code for several levels. Its
// portable form is NameGo.
type kernel struct {
	name   string
	args   string // as in a Go declaration
	result string
	code   func(*asm)

	// step names one of steps, where the assembly takes multiples of some number of
	// elements only; portable Go does the rest: both compute the same bits. whole and
	// rest are the arguments for the first n elements and for the others; by default
	// the slices cut at n.
	step        string
	whole, rest string

	// lanes, if not 0, is how many lanes a vector has at most: a set with more has the code
	// of the widest that has not.
	lanes int

	// constants, if not 0, is how many constants are held in registers at most, where the
	// body needs many.
	constants int
}

// The steps.
const (
	narrow = "narrow"
	pairs  = "pairs"
)

var steps = []struct {
	name, what string
	of         func(s sets.Set) int
}{
	{narrow, "whole vectors, where it has no masks for elements of less than 32 bits", func(s sets.Set) int {
		if s.Opmask {
			return 1
		}
		return s.Lanes()
	}},
	{pairs, "pairs of vectors", func(s sets.Set) int { return 2 * s.Lanes() }},
}

// groups is every kernel, by the file its assembly goes to.
var groups = []struct {
	file    string
	kernels []kernel
}{
	{"arith", []kernel{
		{name: "add", args: "dst, a, b []float32", code: codeAdd},
		{name: "sub", args: "dst, a, b []float32", code: codeSub},
		{name: "mul", args: "dst, a, b []float32", code: codeMul},
		{name: "div", args: "dst, a, b []float32", code: codeDiv},
		{name: "minimum", args: "dst, a, b []float32", code: codeMin},
		{name: "maximum", args: "dst, a, b []float32", code: codeMax},
		{name: "addScalar", args: "dst, a []float32, s float32", code: codeAddScalar},
		{name: "mulScalar", args: "dst, a []float32, s float32", code: codeMulScalar},
		{name: "axpy", args: "dst, a []float32, s float32", code: codeAxpy},
		{name: "neg", args: "dst, x []float32", code: codeNeg},
		{name: "abs", args: "dst, x []float32", code: codeAbs},
		{name: "square", args: "dst, x []float32", code: codeSquare},
		{name: "sqrt", args: "dst, x []float32", code: codeSqrt},
		{name: "rsqrt", args: "dst, x []float32", code: codeRsqrt},
		{name: "recip", args: "dst, x []float32", code: codeRecip},
		{name: "greaterZero", args: "dst, x []float32", code: codeGreaterZero},
		{name: "selectMask", args: "dst, mask, a, b []float32", code: codeSelect},
		{name: "fill", args: "dst []float32, v float32", code: codeFill},
		{name: "relu", args: "dst, x []float32", code: codeRelu},
		{name: "reluGrad", args: "dst, x, dy []float32", code: codeReluGrad},
		{name: "leakyRelu", args: "dst, x []float32, slope float32", code: codeLeakyRelu},
		{name: "leakyReluGrad", args: "dst, x, dy []float32, slope float32", code: codeLeakyReluGrad},
		{name: "routeMax", args: "dst, grad, top, x []float32", code: codeRouteMax},
	}},
	{"math", []kernel{
		{name: "exp", args: "dst, x []float32", code: codeExp},
		{name: "log", args: "dst, x []float32", code: codeLog},
		{name: "tanh", args: "dst, x []float32", code: codeTanh},
		{name: "sigmoid", args: "dst, x []float32", code: codeSigmoid},
		{name: "softplus", args: "dst, x []float32", code: codeSoftplus},
		{name: "sin", args: "dst, x []float32", result: "(beyond uint32)", code: codeSin},
		{name: "cos", args: "dst, x []float32", result: "(beyond uint32)", code: codeCos},
		{name: "gelu", args: "dst, x []float32", code: codeGELU},
		{name: "geluGrad", args: "dst, x, dy []float32", code: codeGELUGrad},
		{name: "geluTanh", args: "dst, x []float32", code: codeGELUTanh},
		{name: "geluTanhGrad", args: "dst, x, dy []float32", code: codeGELUTanhGrad},
		{name: "silu", args: "dst, x []float32", code: codeSiLU},
		{name: "siluGrad", args: "dst, x, dy []float32", code: codeSiLUGrad},
		{name: "tanhGrad", args: "dst, y, dy []float32", code: codeTanhGrad},
		{name: "sigmoidGrad", args: "dst, y, dy []float32", code: codeSigmoidGrad},
		{name: "elu", args: "dst, x []float32, alpha float32", code: codeELU},
		{name: "eluGrad", args: "dst, x, dy []float32, alpha float32", code: codeELUGrad},
	}},
	{"reduce", []kernel{
		{name: "sum", args: "x []float32", result: "float32", code: codeSum},
		{name: "dot", args: "a, b []float32", result: "float32", code: codeDot},
		{name: "sumF64", args: "x []float32", result: "float64", code: codeSumF64},
		{name: "sumSqF64", args: "x []float32", result: "float64", code: codeSumSqF64},
		{name: "maxValue", args: "x []float32", result: "float32", code: codeMaxValue},
		{name: "maxMagnitude", args: "x []float32", result: "float32", code: codeMaxMagnitude},
		{name: "indexOf", args: "x []float32, v float32", result: "int", code: codeIndexOf},
	}},
	{"matvec", []kernel{
		{name: "matVec", args: "y, w, x []float32", code: codeMatVec("w")},
		{name: "matVecBF16", args: "y []float32, w []uint16, x []float32", code: codeMatVec("w:bf16")},
	}},
	{"softmax", []kernel{
		{name: "expSubSum", args: "dst, x []float32, m float32", result: "float32", code: codeExpSubSum},
		{name: "expSubSumOnly", args: "x []float32, m float32", result: "float32", code: codeExpSubSumOnly},
		{name: "expSubScale", args: "dst, x []float32, m, scale float32", code: codeExpSubScale},
		{name: "subMul", args: "dst, a, b []float32, s float32", code: codeSubMul},
	}},
	{"norm", []kernel{
		{name: "sumSqDev", args: "x []float32, mean float32", result: "float32", code: codeSumSqDev("f32")},
		{name: "norm", args: "y, x []float32, mean, rstd float32", code: codeNorm},
		{name: "normGamma", args: "y, x, gamma []float32, mean, rstd float32", code: codeNormGamma},
		{name: "normAffine", args: "y, x, gamma, beta []float32, mean, rstd float32", code: codeNormAffine("f32")},
		{name: "gradSums", args: "dy, x []float32, mean, rstd float32", result: "(sg, sgx float32)", code: codeGradSums},
		{name: "gradSumsGamma", args: "dy, x, gamma []float32, mean, rstd float32", result: "(sg, sgx float32)", code: codeGradSumsGamma},
		{name: "gradSumsAll", args: "dgamma, dbeta, dy, x, gamma []float32, mean, rstd float32", result: "(sg, sgx float32)", code: codeGradSumsAll("f32")},
		{name: "gammaGrad", args: "acc, dy, x []float32, mean, rstd float32", code: codeGammaGrad},
		{name: "gradInput", args: "dx, dy, x []float32, mean, rstd, c, cx float32", code: codeGradInput},
		{name: "gradInputGamma", args: "dx, dy, x, gamma []float32, mean, rstd, c, cx float32", code: codeGradInputGamma("f32")},
		{name: "sumBF16", args: "x []uint16", result: "float32", code: codeSumBF16},
		{name: "sumSqDevBF16", args: "x []uint16, mean float32", result: "float32", code: codeSumSqDev("bf16")},
		{name: "normAffineBF16", args: "y, x []uint16, gamma, beta []float32, mean, rstd float32", code: codeNormAffine("bf16")},
		{name: "gradSumsAllBF16", args: "dgamma, dbeta []float32, dy, x []uint16, gamma []float32, mean, rstd float32", result: "(sg, sgx float32)", code: codeGradSumsAll("bf16")},
		{name: "gradInputGammaBF16", args: "dx, dy, x []uint16, gamma []float32, mean, rstd, c, cx float32", code: codeGradInputGamma("bf16")},
		{name: "gradInputGammaAddBF16", args: "dx, dy, x, addend []uint16, gamma []float32, mean, rstd, c, cx float32", code: codeGradInputGammaAddBF16},
	}},
	{"columns", []kernel{
		{name: "addRows", args: "acc, x []float32, rows, stride int", code: codeAddRows("f32")},
		{
			name: "addRowsBF16", args: "acc []float32, x []uint16, rows, stride int", code: codeAddRows("bf16"), step: narrow,
			whole: "acc[:n], x, rows, stride", rest: "acc[n:], x[n:], rows, stride",
		},
		{name: "columnSqDev", args: "acc, x, mean []float32", code: codeColumnSqDev("f32")},
		{name: "columnSqDevBF16", args: "acc []float32, x []uint16, mean []float32", code: codeColumnSqDev("bf16"), step: narrow},
		{name: "columnNorm", args: "y, x, mean, scale, shift []float32", code: codeColumnNorm("f32")},
		{name: "columnNormBF16", args: "y, x []uint16, mean, scale, shift []float32", code: codeColumnNorm("bf16"), step: narrow},
		{name: "columnGradSums", args: "sum, dot, dy, x, mean []float32", code: codeColumnGradSums("f32")},
		{name: "columnGradSumsBF16", args: "sum, dot []float32, dy, x []uint16, mean []float32", code: codeColumnGradSums("bf16"), step: narrow},
		{name: "columnNormGrad", args: "dx, dy, x, mean, a, b, c []float32", code: codeColumnNormGrad("f32")},
		{name: "columnNormGradBF16", args: "dx, dy, x []uint16, mean, a, b, c []float32", code: codeColumnNormGrad("bf16"), step: narrow},
	}},
	{"pool", []kernel{
		{name: "maxPool", args: "dst, x0, x1 []float32, ch int", code: codeMaxPool("f32"), lanes: 8},
		{name: "maxPoolBF16", args: "dst, x0, x1 []uint16, ch int", code: codeMaxPool("bf16"), lanes: 8},
		{name: "maxPoolGrad", args: "dx0, dx1, dy, y, x0, x1 []float32, ch int", code: codeMaxPoolGrad("f32"), lanes: 8},
		{name: "maxPoolGradBF16", args: "dx0, dx1, dy, y, x0, x1 []uint16, ch int", code: codeMaxPoolGrad("bf16"), lanes: 8},
	}},
	{"rotary", []kernel{
		{name: "rotateHalf", args: "d0, d1, x0, x1, cos, sin []float32, dir float32", code: codeRotateHalf},
	}},
	{"adamw", []kernel{
		{name: "adamw", args: "w, g, m, v []float32, s *[8]float32", code: codeAdamW},
		{name: "lion", args: "w, g, m []float32, s *[8]float32", code: codeLion},
	}},
	{"codes8", []kernel{
		{name: "decodeSigned8", args: "dst []float32, codes []uint8, scale float32", code: codeDecodeSigned8, step: narrow},
		{name: "decodeUnsigned8", args: "dst []float32, codes []uint8, scale float32", code: codeDecodeUnsigned8, step: narrow},
		{name: "encodeSigned8", args: "codes []uint8, x []float32, inv float32", code: codeEncodeSigned8, step: narrow, constants: 13},
		{name: "encodeUnsigned8", args: "codes []uint8, x []float32, random []uint16, inv float32", code: codeEncodeUnsigned8, step: narrow, constants: 13},
		{name: "integers8", args: "dst []float32, codes []uint8, scale float32, unit float32", code: codeIntegers8, step: narrow},
	}},
	{"convert", []kernel{
		{name: "bf16ToF32", args: "dst []float32, src []uint16", code: codeBF16ToF32, step: narrow},
		{name: "f32ToBF16", args: "dst []uint16, src []float32", code: codeF32ToBF16, step: narrow},
		{name: "stochasticBF16", args: "dst []uint16, src []float32, random []uint16", code: codeStochasticBF16, step: narrow},
		{name: "f16ToF32", args: "dst []float32, src []uint16", code: codeF16ToF32, step: narrow},
		{name: "f32ToF16", args: "dst []uint16, src []float32", code: codeF32ToF16, step: narrow},
		{name: "roundBF16", args: "dst, src []float32", code: codeRoundBF16},
		{name: "roundF16", args: "dst, src []float32", code: codeRoundF16},
		{name: "i32ToF32", args: "dst []float32, src []int32", code: codeI32ToF32},
	}},
	{"random", []kernel{
		{name: "philox", args: "dst []uint32, seed, stream, block uint64", code: codePhilox, step: pairs, rest: "dst[n:], seed, stream, block+uint64(n/4)"},
		{name: "uniform", args: "dst []float32", code: codeUniform},
		{name: "dropout", args: "dst []float32, keep, scale float32", code: codeDropout},
		{name: "boxMuller", args: "dst []float32", code: codeBoxMuller, step: pairs},
	}},
	{"transpose", []kernel{
		{name: "transpose32", args: "dst []float32, dstStride int, src []float32, srcStride, rows, cols int", code: codeTranspose(tile32)},
		{name: "transpose16", args: "dst []uint16, dstStride int, src []uint16, srcStride, rows, cols int", code: codeTranspose(tile16)},
	}},
}
