package simd

import "math"

// Add writes a + b.
func Add(dst, a, b []float32) {
	same(len(dst), len(a), len(b))
	add(dst, a, b)
}

// Sub writes a - b.
func Sub(dst, a, b []float32) {
	same(len(dst), len(a), len(b))
	sub(dst, a, b)
}

// Mul writes a * b.
func Mul(dst, a, b []float32) {
	same(len(dst), len(a), len(b))
	mul(dst, a, b)
}

// Div writes a / b.
func Div(dst, a, b []float32) {
	same(len(dst), len(a), len(b))
	div(dst, a, b)
}

// Min writes the smaller of a and b, NaN if either is NaN. Of two zeros it writes b.
func Min(dst, a, b []float32) {
	same(len(dst), len(a), len(b))
	minimum(dst, a, b)
}

// Max writes the larger of a and b, NaN if either is NaN. Of two zeros it writes b.
func Max(dst, a, b []float32) {
	same(len(dst), len(a), len(b))
	maximum(dst, a, b)
}

// AddScalar writes a + s.
func AddScalar(dst, a []float32, s float32) {
	same(len(dst), len(a), len(a))
	addScalar(dst, a, s)
}

// MulScalar writes a * s.
func MulScalar(dst, a []float32, s float32) {
	same(len(dst), len(a), len(a))
	mulScalar(dst, a, s)
}

// Axpy adds s * a to dst; the product is rounded before it is added.
func Axpy(dst, a []float32, s float32) {
	same(len(dst), len(a), len(a))
	axpy(dst, a, s)
}

// Neg writes -x (the sign bit flipped, even for NaN).
func Neg(dst, x []float32) {
	same(len(dst), len(x), len(x))
	neg(dst, x)
}

// Abs writes |x| (the sign bit cleared, even for NaN).
func Abs(dst, x []float32) {
	same(len(dst), len(x), len(x))
	abs(dst, x)
}

// Square writes x * x.
func Square(dst, x []float32) {
	same(len(dst), len(x), len(x))
	square(dst, x)
}

// Sqrt writes the correctly rounded square root, NaN for x < 0.
func Sqrt(dst, x []float32) {
	same(len(dst), len(x), len(x))
	sqrt(dst, x)
}

// Rsqrt writes 1 / sqrt(x): a rounded root, then a rounded division.
func Rsqrt(dst, x []float32) {
	same(len(dst), len(x), len(x))
	rsqrt(dst, x)
}

// Recip writes 1 / x, correctly rounded.
func Recip(dst, x []float32) {
	same(len(dst), len(x), len(x))
	recip(dst, x)
}

// GreaterZero writes 1 where x > 0 and 0 elsewhere (NaN included).
func GreaterZero(dst, x []float32) {
	same(len(dst), len(x), len(x))
	greaterZero(dst, x)
}

// Select writes a where mask is not zero (NaN counts as not zero) and b elsewhere.
func Select(dst, mask, a, b []float32) {
	same(len(dst), len(a), len(b))
	same(len(dst), len(mask), len(mask))
	selectMask(dst, mask, a, b)
}

// Copy copies src to dst.
func Copy(dst, src []float32) {
	same(len(dst), len(src), len(src))
	copy(dst, src)
}

// Fill writes v to every element.
func Fill(dst []float32, v float32) { fill(dst, v) }

func addGo(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func subGo(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

func mulGo(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func divGo(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

func minimumGo(dst, a, b []float32) {
	for i, x := range a {
		if y := b[i]; !(x < y) && x == x {
			x = y
		}
		dst[i] = x
	}
}

func maximumGo(dst, a, b []float32) {
	for i, x := range a {
		dst[i] = larger(x, b[i])
	}
}

func larger(x, y float32) float32 {
	if x > y || x != x {
		return x
	}
	return y
}

func addScalarGo(dst, a []float32, s float32) {
	for i, x := range a {
		dst[i] = x + s
	}
}

func mulScalarGo(dst, a []float32, s float32) {
	for i, x := range a {
		dst[i] = x * s
	}
}

// axpyGo converts the product explicitly: Go may otherwise fuse it with the
// addition on some architectures.
func axpyGo(dst, a []float32, s float32) {
	for i, x := range a {
		dst[i] += float32(s * x)
	}
}

const signBit = 1 << 31

func negGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = math.Float32frombits(math.Float32bits(v) ^ signBit)
	}
}

func absGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = math.Float32frombits(math.Float32bits(v) &^ signBit)
	}
}

func squareGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = v * v
	}
}

// sqrt32 is exact: the float64 root of a float32 rounds to the float32 root.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func sqrtGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = sqrt32(v)
	}
}

func rsqrtGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = 1 / sqrt32(v)
	}
}

func recipGo(dst, x []float32) {
	for i, v := range x {
		dst[i] = 1 / v
	}
}

func greaterZeroGo(dst, x []float32) {
	for i, v := range x {
		if v > 0 {
			dst[i] = 1
		} else {
			dst[i] = 0
		}
	}
}

func selectMaskGo(dst, mask, a, b []float32) {
	for i, m := range mask {
		if m != 0 {
			dst[i] = a[i]
		} else {
			dst[i] = b[i]
		}
	}
}

func fillGo(dst []float32, v float32) {
	for i := range dst {
		dst[i] = v
	}
}
