package simd

import "math"

// The errors stated are those of the assembly. A gradient has zeros; near them its error
// is bounded in units of 2^-23 times |dy| instead of ulps.

// GELU writes x * Phi(x), Phi the normal distribution function:
// 0.5 * x * (1 + erf(x / sqrt 2)) (Hendrycks and Gimpel, 2016). It is 0 for -Inf.
// Error: at most 2.5 ulp with AVX2 and AVX-512, 4 with NEON; for x < -4 that or 2^-27.
func GELU(dst, x []float32) {
	same(len(dst), len(x), len(x))
	gelu(dst, x)
}

// GELUGrad writes dy * (Phi(x) + x * phi(x)), phi the normal density.
// Error: at most 1 ulp or 2^-23 |dy| with AVX2 and AVX-512, twice as much with NEON.
func GELUGrad(dst, x, dy []float32) {
	same(len(dst), len(x), len(dy))
	geluGrad(dst, x, dy)
}

// GELUTanh writes 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))). It
// is -0 for -Inf. Error: at most 3 ulp for x > -1, 3 ulp or 3 * 2^-25 below.
func GELUTanh(dst, x []float32) {
	same(len(dst), len(x), len(x))
	geluTanh(dst, x)
}

// GELUTanhGrad writes dy times the derivative of GELUTanh at x. Error: at most
// 2.5 ulp or 2.5 * 2^-23 |dy|.
func GELUTanhGrad(dst, x, dy []float32) {
	same(len(dst), len(x), len(dy))
	geluTanhGrad(dst, x, dy)
}

// SiLU writes x * sigmoid(x) (also called swish). It is -0 for -Inf. Error:
// at most 3 ulp, for results of at least 2^-137.
func SiLU(dst, x []float32) {
	same(len(dst), len(x), len(x))
	silu(dst, x)
}

// SiLUGrad writes dy * s * (1 + x * (1 - s)) with s = sigmoid(x). Error: at most
// 2 ulp or 2 * 2^-23 |dy|.
func SiLUGrad(dst, x, dy []float32) {
	same(len(dst), len(x), len(dy))
	siluGrad(dst, x, dy)
}

// TanhGrad writes dy * (1 - y*y), y = tanh(x) being the forward result.
func TanhGrad(dst, y, dy []float32) {
	same(len(dst), len(y), len(dy))
	tanhGrad(dst, y, dy)
}

// SigmoidGrad writes dy * (y * (1 - y)), y = sigmoid(x) being the forward result.
func SigmoidGrad(dst, y, dy []float32) {
	same(len(dst), len(y), len(dy))
	sigmoidGrad(dst, y, dy)
}

// ELU writes x where x > 0 and alpha * (e^x - 1) elsewhere. Error: at most
// 1 ulp for alpha 1.
func ELU(dst, x []float32, alpha float32) {
	same(len(dst), len(x), len(x))
	elu(dst, x, alpha)
}

// ELUGrad writes dy where x > 0 and dy * (alpha * e^x) elsewhere. Error: at
// most 1 ulp for alpha and dy 1.
func ELUGrad(dst, x, dy []float32, alpha float32) {
	same(len(dst), len(x), len(dy))
	eluGrad(dst, x, dy, alpha)
}

const (
	sqrt2OverPi = 0.79788456080286535588
	invSqrt2Pi  = 0.39894228040143267794
	geluCubic   = 0.044715
)

func geluGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(gelu64(float64(v)))
	}
}

// flat is the size of x from which on every activation here equals, in float64, its value
// at infinity; clamping arguments to it gives limits instead of 0 * Inf.
const flat = 1e3

func limit(x float64) float64 { return max(-flat, min(flat, x)) }

func gelu64(x float64) float64 { return max(-flat, x) * (0.5 * math.Erfc(-x/math.Sqrt2)) }

func geluGradGo(dst, x, dy []float32) {
	for i, v := range x {
		dst[i] = float32(float64(dy[i]) * geluGrad64(float64(v)))
	}
}

func geluGrad64(x float64) float64 {
	x = limit(x)
	return 0.5*math.Erfc(-x/math.Sqrt2) + x*(invSqrt2Pi*math.Exp(-0.5*x*x))
}

func geluTanhGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(geluTanh64(float64(v)))
	}
}

// geluTanh64 uses 1 + tanh(u) = 2 sigmoid(2u), which does not cancel for u < 0.
func geluTanh64(x float64) float64 {
	at := limit(x)
	return max(-flat, x) * sigmoid64(2*sqrt2OverPi*(at+geluCubic*at*at*at))
}

func geluTanhGradGo(dst, x, dy []float32) {
	for i, v := range x {
		dst[i] = float32(float64(dy[i]) * geluTanhGrad64(float64(v)))
	}
}

func geluTanhGrad64(x float64) float64 {
	x = limit(x)
	s := sigmoid64(2 * sqrt2OverPi * (x + geluCubic*x*x*x))
	return s + x*(s*(1-s))*(2*sqrt2OverPi*(1+3*geluCubic*x*x))
}

func siluGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(silu64(float64(v)))
	}
}

func silu64(x float64) float64 { return max(-flat, x) * sigmoid64(x) }

func siluGradGo(dst, x, dy []float32) {
	for i, v := range x {
		dst[i] = float32(float64(dy[i]) * siluGrad64(float64(v)))
	}
}

func siluGrad64(x float64) float64 {
	x = limit(x)
	s := sigmoid64(x)
	return s * (1 + x*sigmoid64(-x))
}

func tanhGradGo(dst, y, dy []float32) {
	for i, v := range y {
		dst[i] = dy[i] * (1 - float32(v*v))
	}
}

func sigmoidGradGo(dst, y, dy []float32) {
	for i, v := range y {
		dst[i] = dy[i] * (v * (1 - v))
	}
}

func eluGo(dst, x []float32, alpha float32) {
	for i, v := range x {
		if !(v > 0) {
			v = alpha * float32(math.Expm1(float64(v)))
		}
		dst[i] = v
	}
}

func eluGradGo(dst, x, dy []float32, alpha float32) {
	for i, v := range x {
		g := dy[i]
		if !(v > 0) {
			g *= alpha * float32(math.Exp(float64(v)))
		}
		dst[i] = g
	}
}
