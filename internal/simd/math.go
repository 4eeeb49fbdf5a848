package simd

import "math"

// The errors stated below are those of the assembly, in units in the last place
// of the result; portable Go is within 0.5 ulp plus a rounding of float64.

// Exp writes e^x. Error: at most 1 ulp, subnormal results included.
func Exp(dst, x []float32) {
	same(len(dst), len(x), len(x))
	exp(dst, x)
}

// Log writes the natural logarithm: -Inf for 0, NaN for x < 0. Error:
// at most 1 ulp.
func Log(dst, x []float32) {
	same(len(dst), len(x), len(x))
	log(dst, x)
}

// Tanh writes the hyperbolic tangent. Error: at most 2.5 ulp.
func Tanh(dst, x []float32) {
	same(len(dst), len(x), len(x))
	tanh(dst, x)
}

// Sigmoid writes 1 / (1 + e^-x). Error: at most 2.5 ulp.
func Sigmoid(dst, x []float32) {
	same(len(dst), len(x), len(x))
	sigmoid(dst, x)
}

// Softplus writes log(1 + e^x). Error: at most 2 ulp.
func Softplus(dst, x []float32) {
	same(len(dst), len(x), len(x))
	softplus(dst, x)
}

// Sin writes the sine of x radians. Error: at most 2 ulp.
func Sin(dst, x []float32) {
	same(len(dst), len(x), len(x))
	if sin(dst, x) != 0 {
		finishTrig(dst, math.Sin)
	}
}

// Cos writes the cosine of x radians. Error: at most 2 ulp.
func Cos(dst, x []float32) {
	same(len(dst), len(x), len(x))
	if cos(dst, x) != 0 {
		finishTrig(dst, math.Cos)
	}
}

// finishTrig replaces the arguments that the assembly left in place because
// they are beyond its limit of 1e5. No sine or cosine is larger than 1.
func finishTrig(dst []float32, f func(float64) float64) {
	for i, v := range dst {
		if v > 1 || v < -1 {
			dst[i] = float32(f(float64(v)))
		}
	}
}

// The portable functions compute in float64 and round once.

func expGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(math.Exp(float64(v)))
	}
}

func logGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(math.Log(float64(v)))
	}
}

func tanhGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(math.Tanh(float64(v)))
	}
}

func sigmoidGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(sigmoid64(float64(v)))
	}
}

// sigmoid64 needs no case for large |x|: e^-x overflows to Inf only if the result is
// below the smallest float32.
func sigmoid64(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func softplusGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(softplus64(float64(v)))
	}
}

func softplus64(x float64) float64 {
	return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x)))
}

func sinGo(dst, x []float32) (beyond uint32) {
	for i, v := range x {
		dst[i] = float32(math.Sin(float64(v)))
	}
	return 0
}

func cosGo(dst, x []float32) (beyond uint32) {
	for i, v := range x {
		dst[i] = float32(math.Cos(float64(v)))
	}
	return 0
}
