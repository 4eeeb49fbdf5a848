package simd

import (
	"math"
	"unsafe"
)

// Codes8 are the tables that convert numbers in [-1, 1] to 8-bit codes and back.
type Codes8 struct {
	Values [256]float32 // in ascending order
	// Above[i] is the largest number whose code is i.
	Above [256]float32
	// First is the code of the smallest number in a bucket: the code of any other is the
	// same or the next.
	First [2 * Buckets8]uint32
}

// The buckets of Codes8.First: the upper 16 bits of a magnitude, cut at both ends, and
// again as many for negative numbers.
const (
	LeastBucket8 = 0x3400 // 2^-23
	MostBucket8  = 0x3f80 // 1
	Buckets8     = MostBucket8 - LeastBucket8 + 1
)

// words returns the tables as the kernels read them.
func (t *Codes8) words() *[words8]uint32 { return (*[words8]uint32)(unsafe.Pointer(t)) }

// Where the tables begin in words.
const (
	above8 = 256
	first8 = 2 * above8
	words8 = first8 + 2*Buckets8
)

// Decode8 writes dst[i] = t.Values[codes[i]] * scale.
func Decode8(dst []float32, codes []uint8, t *Codes8, scale float32) {
	same(len(dst), len(codes), len(codes))
	decode8(dst, codes, t.words(), scale)
}

// Encode8 writes the codes of x[i] * inv. Numbers above 0 get no code below 1.
func Encode8(codes []uint8, x []float32, t *Codes8, inv float32) {
	same(len(codes), len(x), len(x))
	encode8(codes, x, t.words(), inv)
}

// Integers8 writes dst[i] = codes[i] * scale * unit, each code a signed byte, rounded after
// each product.
func Integers8(dst []float32, codes []uint8, scale, unit float32) {
	same(len(dst), len(codes), len(codes))
	integers8(dst, codes, scale, unit)
}

func integers8Go(dst []float32, codes []uint8, scale, unit float32) {
	for i, c := range codes {
		dst[i] = float32(float32(int8(c))*scale) * unit
	}
}

func decode8Go(dst []float32, codes []uint8, t *[words8]uint32, scale float32) {
	for i, c := range codes {
		dst[i] = math.Float32frombits(t[c]) * scale
	}
}

func encode8Go(codes []uint8, x []float32, t *[words8]uint32, inv float32) {
	for i, v := range x {
		v *= inv
		bits := math.Float32bits(v)
		at := min(max(int(bits<<1>>17), LeastBucket8), MostBucket8) - LeastBucket8
		if bits>>31 != 0 {
			at += Buckets8
		}
		code := t[first8+at]
		if v > math.Float32frombits(t[above8+code]) {
			code++
		}
		if v > 0 {
			code = max(code, 1)
		}
		codes[i] = uint8(code)
	}
}
