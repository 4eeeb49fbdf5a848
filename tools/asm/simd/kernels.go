package main

// A kernel is a function of package simd that has code for several levels. Its
// portable form is NameGo.
type kernel struct {
	name   string
	args   string // as in a Go declaration
	result string
}

// kernels is every kernel, in the order of the generated files.
var kernels = []kernel{
	{name: "add", args: "dst, a, b []float32"},
	{name: "sub", args: "dst, a, b []float32"},
	{name: "mul", args: "dst, a, b []float32"},
	{name: "div", args: "dst, a, b []float32"},
	{name: "minimum", args: "dst, a, b []float32"},
	{name: "maximum", args: "dst, a, b []float32"},
	{name: "addScalar", args: "dst, a []float32, s float32"},
	{name: "mulScalar", args: "dst, a []float32, s float32"},
	{name: "axpy", args: "dst, a []float32, s float32"},
	{name: "neg", args: "dst, x []float32"},
	{name: "abs", args: "dst, x []float32"},
	{name: "square", args: "dst, x []float32"},
	{name: "sqrt", args: "dst, x []float32"},
	{name: "rsqrt", args: "dst, x []float32"},
	{name: "recip", args: "dst, x []float32"},
	{name: "greaterZero", args: "dst, x []float32"},
	{name: "selectMask", args: "dst, mask, a, b []float32"},
	{name: "fill", args: "dst []float32, v float32"},
	{name: "relu", args: "dst, x []float32"},
	{name: "reluGrad", args: "dst, x, dy []float32"},
	{name: "leakyRelu", args: "dst, x []float32, slope float32"},
	{name: "leakyReluGrad", args: "dst, x, dy []float32, slope float32"},

	{name: "exp", args: "dst, x []float32"},
	{name: "log", args: "dst, x []float32"},
	{name: "tanh", args: "dst, x []float32"},
	{name: "erf", args: "dst, x []float32"},
	{name: "sigmoid", args: "dst, x []float32"},
	{name: "softplus", args: "dst, x []float32"},
	{name: "sin", args: "dst, x []float32"},
	{name: "cos", args: "dst, x []float32"},

	{name: "gelu", args: "dst, x []float32"},
	{name: "geluGrad", args: "dst, x, dy []float32"},
	{name: "geluTanh", args: "dst, x []float32"},
	{name: "geluTanhGrad", args: "dst, x, dy []float32"},
	{name: "silu", args: "dst, x []float32"},
	{name: "siluGrad", args: "dst, x, dy []float32"},
	{name: "tanhGrad", args: "dst, y, dy []float32"},
	{name: "sigmoidGrad", args: "dst, y, dy []float32"},
	{name: "elu", args: "dst, x []float32, alpha float32"},
	{name: "eluGrad", args: "dst, x, dy []float32, alpha float32"},

	{name: "sum", args: "x []float32", result: "float32"},
	{name: "dot", args: "a, b []float32", result: "float32"},
	{name: "sumF64", args: "x []float32", result: "float64"},
	{name: "sumSqF64", args: "x []float32", result: "float64"},
	{name: "maxValue", args: "x []float32", result: "float32"},
	{name: "minValue", args: "x []float32", result: "float32"},
	{name: "indexOf", args: "x []float32, v float32", result: "int"},
	{name: "countNonFinite", args: "x []float32", result: "int"},

	{name: "expSubSum", args: "dst, x []float32, m float32", result: "float32"},
	{name: "expSubSumOnly", args: "x []float32, m float32", result: "float32"},
	{name: "expSubScale", args: "dst, x []float32, m, scale float32"},
	{name: "subMul", args: "dst, a, b []float32, s float32"},

	{name: "sumSqDev", args: "x []float32, mean float32", result: "float32"},
	{name: "norm", args: "y, x []float32, mean, rstd float32"},
	{name: "normGamma", args: "y, x, gamma []float32, mean, rstd float32"},
	{name: "normAffine", args: "y, x, gamma, beta []float32, mean, rstd float32"},
	{name: "gradSums", args: "dy, x []float32, mean, rstd float32", result: "(sg, sgx float32)"},
	{name: "gradSumsGamma", args: "dy, x, gamma []float32, mean, rstd float32", result: "(sg, sgx float32)"},
	{name: "gammaGrad", args: "acc, dy, x []float32, mean, rstd float32"},
	{name: "gradInput", args: "dx, dy, x []float32, mean, rstd, c, cx float32"},
	{name: "gradInputGamma", args: "dx, dy, x, gamma []float32, mean, rstd, c, cx float32"},

	{name: "rotateHalf", args: "d0, d1, x0, x1, cos, sin []float32, dir float32"},
	{name: "rotatePairs", args: "dst, x, cos, sin []float32, dir float32"},

	{name: "adamw", args: "w, g, m, v []float32, s *[8]float32"},
	{name: "adamwBF16", args: "w, g, m, v []float32, dst []uint16, s *[8]float32"},
	{name: "adamwF16", args: "w, g, m, v []float32, dst []uint16, s *[8]float32"},

	{name: "bf16ToF32", args: "dst []float32, src []uint16"},
	{name: "f32ToBF16", args: "dst []uint16, src []float32"},
	{name: "f16ToF32", args: "dst []float32, src []uint16"},
	{name: "f32ToF16", args: "dst []uint16, src []float32"},
	{name: "roundBF16", args: "dst, src []float32"},
	{name: "roundF16", args: "dst, src []float32"},
	{name: "i32ToF32", args: "dst []float32, src []int32"},
	{name: "u8ToF32", args: "dst []float32, src []uint8, scale, shift float32"},

	{name: "philox", args: "dst []uint32, seed, stream, block uint64"},
	{name: "uniform", args: "dst []float32"},
	{name: "dropout", args: "dst []float32, keep, scale float32"},
	{name: "boxMuller", args: "dst []float32"},

	{name: "transpose32", args: "dst []float32, dstStride int, src []float32, srcStride, rows, cols int"},
	{name: "transpose16", args: "dst []uint16, dstStride int, src []uint16, srcStride, rows, cols int"},
}
