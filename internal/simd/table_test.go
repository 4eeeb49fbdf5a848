package simd

import "math"

// An elementwise function under test. f64 is the reference in float64, nil for
// the functions that are exact at every level.
type elementwise struct {
	name   string
	inputs int
	run    func(dst []float32, in [][]float32)
	f64    func(x []float64) float64
	// ulps bounds the error in units of the last place of the result. Where
	// unit is set, a unit is at least what it returns for the argument x: no
	// bound relative to the result holds near the zero of a gradient, or where
	// an intermediate result is subnormal.
	ulps     float64
	assembly float64 // the same of assembly, where AVX-512 has a form of its own
	unit     func(x float64) float64
}

// gradient is the unit of the functions that have values of the order of 1 and zeros.
func gradient(float64) float64 { return 0x1p-23 }

// subnormal is the unit of products whose factors may be subnormal.
func subnormal(float64) float64 { return 0x1p-137 }

// geluForm is the unit of GELU: far below 0, where it vanishes, the error is an
// absolute one.
func geluForm(x float64) float64 {
	if x > -4 {
		return 0
	}
	return 0x1p-30
}

// tanhForm is the unit of GELUTanh: the argument of the exponential is rounded,
// which counts for x < -1, where the exponential dominates.
func tanhForm(x float64) float64 {
	if x > -1 {
		return 0
	}
	return 0x1p-25
}

const testScalar = 0.37

// scratch holds copies of arguments that a function changes, halves arguments
// in bfloat16.
var (
	scratch [2][1 << 14]float32
	halves  [3][1 << 14]uint16
)

func changed(k int, x []float32) []float32 { return scratch[k][:copy(scratch[k][:], x)] }

func inBF16(k int, x []float32) []uint16 {
	h := halves[k][:len(x)]
	f32ToBF16Go(h, x)
	return h
}

var elementwiseTable = []elementwise{
	{name: "Add", inputs: 2, run: func(d []float32, in [][]float32) { Add(d, in[0], in[1]) }},
	{name: "Sub", inputs: 2, run: func(d []float32, in [][]float32) { Sub(d, in[0], in[1]) }},
	{name: "Mul", inputs: 2, run: func(d []float32, in [][]float32) { Mul(d, in[0], in[1]) }},
	{name: "Div", inputs: 2, run: func(d []float32, in [][]float32) { Div(d, in[0], in[1]) }},
	{name: "Min", inputs: 2, run: func(d []float32, in [][]float32) { Min(d, in[0], in[1]) }},
	{name: "Max", inputs: 2, run: func(d []float32, in [][]float32) { Max(d, in[0], in[1]) }},
	{name: "AddScalar", inputs: 1, run: func(d []float32, in [][]float32) { AddScalar(d, in[0], testScalar) }},
	{name: "MulScalar", inputs: 1, run: func(d []float32, in [][]float32) { MulScalar(d, in[0], testScalar) }},
	{name: "Axpy", inputs: 2, run: func(d []float32, in [][]float32) {
		copy(d, in[0])
		Axpy(d, in[1], testScalar)
	}},
	{name: "Neg", inputs: 1, run: func(d []float32, in [][]float32) { Neg(d, in[0]) }},
	{name: "Abs", inputs: 1, run: func(d []float32, in [][]float32) { Abs(d, in[0]) }},
	{name: "Square", inputs: 1, run: func(d []float32, in [][]float32) { Square(d, in[0]) }},
	{name: "Sqrt", inputs: 1, run: func(d []float32, in [][]float32) { Sqrt(d, in[0]) }},
	{name: "Rsqrt", inputs: 1, run: func(d []float32, in [][]float32) { Rsqrt(d, in[0]) }},
	{name: "Recip", inputs: 1, run: func(d []float32, in [][]float32) { Recip(d, in[0]) }},
	{name: "GreaterZero", inputs: 1, run: func(d []float32, in [][]float32) { GreaterZero(d, in[0]) }},
	{name: "Select", inputs: 3, run: func(d []float32, in [][]float32) { Select(d, in[0], in[1], in[2]) }},
	{name: "Copy", inputs: 1, run: func(d []float32, in [][]float32) { Copy(d, in[0]) }},
	{name: "Fill", inputs: 0, run: func(d []float32, _ [][]float32) { Fill(d, testScalar) }},
	{name: "Relu", inputs: 1, run: func(d []float32, in [][]float32) { Relu(d, in[0]) }},
	{name: "ReluGrad", inputs: 2, run: func(d []float32, in [][]float32) { ReluGrad(d, in[0], in[1]) }},
	{name: "LeakyRelu", inputs: 1, run: func(d []float32, in [][]float32) { LeakyRelu(d, in[0], testScalar) }},
	{name: "LeakyReluGrad", inputs: 2, run: func(d []float32, in [][]float32) { LeakyReluGrad(d, in[0], in[1], testScalar) }},
	{name: "RouteMax", inputs: 4, run: func(d []float32, in [][]float32) {
		sum, left := changed(0, in[0]), changed(1, in[1])
		RouteMax(sum, left, in[2], in[3])
		for i, v := range left {
			d[i] = sum[i] - 3*v
		}
	}},
	{name: "TanhGrad", inputs: 2, run: func(d []float32, in [][]float32) { TanhGrad(d, in[0], in[1]) }},
	{name: "SigmoidGrad", inputs: 2, run: func(d []float32, in [][]float32) { SigmoidGrad(d, in[0], in[1]) }},
	{name: "RoundBF16", inputs: 1, run: func(d []float32, in [][]float32) { RoundBF16(d, in[0]) }},
	{name: "RoundF16", inputs: 1, run: func(d []float32, in [][]float32) { RoundF16(d, in[0]) }},
	{name: "subMul", inputs: 2, run: func(d []float32, in [][]float32) { subMul(d, in[0], in[1], testScalar) }},
	{name: "norm", inputs: 1, run: func(d []float32, in [][]float32) { norm(d, in[0], 0.1, 1.7) }},
	{name: "normGamma", inputs: 2, run: func(d []float32, in [][]float32) { normGamma(d, in[0], in[1], 0.1, 1.7) }},
	{name: "normAffine", inputs: 3, run: func(d []float32, in [][]float32) { normAffine(d, in[0], in[1], in[2], 0.1, 1.7) }},
	{name: "gammaGrad", inputs: 3, run: func(d []float32, in [][]float32) {
		copy(d, in[0])
		gammaGrad(d, in[1], in[2], 0.1, 1.7)
	}},
	{name: "gradInput", inputs: 2, run: func(d []float32, in [][]float32) { gradInput(d, in[0], in[1], 0.1, 1.7, 0.2, 0.3) }},
	{name: "gradInputGamma", inputs: 3, run: func(d []float32, in [][]float32) {
		gradInputGamma(d, in[0], in[1], in[2], 0.1, 1.7, 0.2, 0.3)
	}},
	{name: "AddRowsBF16", inputs: 2, run: func(d []float32, in [][]float32) {
		acc := changed(0, in[0])
		AddRowsBF16(acc, inBF16(0, in[1]), 1, len(acc))
		copy(d, acc)
	}},
	{name: "ColumnSqDev", inputs: 3, run: func(d []float32, in [][]float32) {
		acc := changed(0, in[0])
		ColumnSqDev(acc, in[1], in[2])
		copy(d, acc)
	}},
	{name: "ColumnSqDevBF16", inputs: 3, run: func(d []float32, in [][]float32) {
		acc := changed(0, in[0])
		ColumnSqDevBF16(acc, inBF16(0, in[1]), in[2])
		copy(d, acc)
	}},
	{name: "ColumnNorm", inputs: 4, run: func(d []float32, in [][]float32) { ColumnNorm(d, in[0], in[1], in[2], in[3]) }},
	{name: "ColumnNormBF16", inputs: 4, run: func(d []float32, in [][]float32) {
		x := inBF16(0, in[0])
		ColumnNormBF16(x, x, in[1], in[2], in[3])
		bf16ToF32Go(d, x)
	}},
	{name: "ColumnGradSums", inputs: 5, run: func(d []float32, in [][]float32) {
		sum, dot := changed(0, in[0]), changed(1, in[1])
		ColumnGradSums(sum, dot, in[2], in[3], in[4])
		addGo(d, sum, dot)
	}},
	{name: "ColumnGradSumsBF16", inputs: 5, run: func(d []float32, in [][]float32) {
		sum, dot := changed(0, in[0]), changed(1, in[1])
		ColumnGradSumsBF16(sum, dot, inBF16(0, in[2]), inBF16(1, in[3]), in[4])
		addGo(d, sum, dot)
	}},
	{name: "ColumnNormGrad", inputs: 6, run: func(d []float32, in [][]float32) {
		ColumnNormGrad(d, in[0], in[1], in[2], in[3], in[4], in[5])
	}},
	{name: "ColumnNormGradBF16", inputs: 6, run: func(d []float32, in [][]float32) {
		dx := halves[2][:len(d)]
		ColumnNormGradBF16(dx, inBF16(0, in[0]), inBF16(1, in[1]), in[2], in[3], in[4], in[5])
		bf16ToF32Go(d, dx)
	}},

	{name: "Exp", inputs: 1, run: func(d []float32, in [][]float32) { Exp(d, in[0]) }, ulps: 1,
		f64: func(x []float64) float64 { return math.Exp(x[0]) }},
	{name: "Log", inputs: 1, run: func(d []float32, in [][]float32) { Log(d, in[0]) }, ulps: 1,
		f64: func(x []float64) float64 { return math.Log(x[0]) }},
	{name: "Tanh", inputs: 1, run: func(d []float32, in [][]float32) { Tanh(d, in[0]) }, ulps: 2.5,
		f64: func(x []float64) float64 { return math.Tanh(x[0]) }},
	{name: "Sigmoid", inputs: 1, run: func(d []float32, in [][]float32) { Sigmoid(d, in[0]) }, ulps: 2.5,
		f64: func(x []float64) float64 { return sigmoid64(x[0]) }},
	{name: "Softplus", inputs: 1, run: func(d []float32, in [][]float32) { Softplus(d, in[0]) }, ulps: 2,
		f64: func(x []float64) float64 { return softplus64(x[0]) }},
	{name: "Sin", inputs: 1, run: func(d []float32, in [][]float32) { Sin(d, in[0]) }, ulps: 2,
		f64: func(x []float64) float64 { return math.Sin(x[0]) }},
	{name: "Cos", inputs: 1, run: func(d []float32, in [][]float32) { Cos(d, in[0]) }, ulps: 2,
		f64: func(x []float64) float64 { return math.Cos(x[0]) }},
	{name: "GELU", inputs: 1, run: func(d []float32, in [][]float32) { GELU(d, in[0]) }, ulps: 4, assembly: 2.5, unit: geluForm,
		f64: func(x []float64) float64 { return gelu64(x[0]) }},
	{name: "GELUGrad", inputs: 2, run: func(d []float32, in [][]float32) { GELUGrad(d, in[0], in[1]) }, ulps: 2, assembly: 1,
		f64: func(x []float64) float64 { return x[1] * geluGrad64(x[0]) }, unit: gradient},
	{name: "GELUTanh", inputs: 1, run: func(d []float32, in [][]float32) { GELUTanh(d, in[0]) }, ulps: 3, unit: tanhForm,
		f64: func(x []float64) float64 { return geluTanh64(x[0]) }},
	{name: "GELUTanhGrad", inputs: 2, run: func(d []float32, in [][]float32) { GELUTanhGrad(d, in[0], in[1]) }, ulps: 2.5,
		f64: func(x []float64) float64 { return x[1] * geluTanhGrad64(x[0]) }, unit: gradient},
	{name: "SiLU", inputs: 1, run: func(d []float32, in [][]float32) { SiLU(d, in[0]) }, ulps: 3, unit: subnormal,
		f64: func(x []float64) float64 { return silu64(x[0]) }},
	{name: "SiLUGrad", inputs: 2, run: func(d []float32, in [][]float32) { SiLUGrad(d, in[0], in[1]) }, ulps: 2,
		f64: func(x []float64) float64 { return x[1] * siluGrad64(x[0]) }, unit: gradient},
	{name: "ELU", inputs: 1, run: func(d []float32, in [][]float32) { ELU(d, in[0], 1) }, ulps: 1,
		f64: func(x []float64) float64 {
			if x[0] > 0 {
				return x[0]
			}
			return math.Expm1(x[0])
		}},
	{name: "ELUGrad", inputs: 2, run: func(d []float32, in [][]float32) { ELUGrad(d, in[0], in[1], 1) }, ulps: 1,
		f64: func(x []float64) float64 {
			if x[0] > 0 {
				return x[1]
			}
			return x[1] * math.Exp(x[0])
		}},
	{name: "expSubScale", inputs: 1, run: func(d []float32, in [][]float32) { expSubScale(d, in[0], 0, 1) }, ulps: 1,
		f64: func(x []float64) float64 { return math.Exp(x[0]) }},
}

// exact reports whether all levels must agree bit for bit.
func (e elementwise) exact() bool { return e.f64 == nil }
