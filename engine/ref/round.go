package ref

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// format describes a binary floating-point format.
type format struct {
	bits   int     // of the significand, the hidden one included
	minExp int     // exponent of the smallest normal number
	limit  float64 // largest finite number
}

var formats = map[graph.DType]format{
	graph.BF16: {8, -126, 0x1.fep127},
	graph.F16:  {11, -14, 65504},
}

// Round returns x as stored in d: to nearest, ties to even, infinite beyond the largest
// number, with gradual underflow below the smallest normal one. For I32 and U8 it is the
// nearest integer.
func Round(x float64, d graph.DType) float64 {
	switch d {
	case graph.F32:
		return float64(float32(x))
	case graph.I32, graph.U8:
		return math.RoundToEven(x)
	}
	f, ok := formats[d]
	if !ok || x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	_, e := math.Frexp(x) // |x| in [2^(e-1), 2^e)
	ulp := max(e-1, f.minExp) - (f.bits - 1)
	y := math.Ldexp(math.RoundToEven(math.Ldexp(x, -ulp)), ulp)
	if math.Abs(y) > f.limit {
		return math.Inf(int(math.Copysign(1, x)))
	}
	return y
}

// RoundAll applies Round to every element, in a new slice.
func RoundAll(x []float64, d graph.DType) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = Round(v, d)
	}
	return y
}

// TF32 returns x as seen by matmuls that round their factors: to 10 bits of mantissa, to
// nearest, ties away from zero, infinite beyond the largest number.
func TF32(x float64) float64 {
	const dropped = 13 // of float32's bits
	f := float32(x)
	if math.IsNaN(x) || math.IsInf(float64(f), 0) {
		return float64(f)
	}
	return float64(math.Float32frombits((math.Float32bits(f) + 1<<(dropped-1)) &^ (1<<dropped - 1)))
}

func tf32All(x []float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = TF32(v)
	}
	return y
}

// quantize returns data as stored in a matrix of type t.
func quantize(t graph.Type, data []float64) []float64 {
	m, _ := t.Quantized()
	x, stored := make([]float32, len(data)), make([]byte, m.Bytes())
	for i, v := range data {
		x[i] = float32(v)
	}
	m.Encode(stored, x)
	m.Decode(x, stored, 0)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}
