package simd

import (
	"math"
	"unsafe"
)

// Codes8 are the tables that convert numbers in [-1, 1] to 8-bit codes and back.
type Codes8 struct {
	Values [256]float32 // in ascending order
	// Above[i] is the largest number whose code is i; for [EncodeStochastic8] it is
	// Values[i+1].
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

// EncodeStochastic8 writes the codes of the numbers above and below x[i] * inv, which is not
// negative, with probabilities given by their distances: the one above if x[i] * inv is at
// least the part (random[i] + 1/2) / 65536 of the way from one to the other. Numbers above 0
// get no code below 1. The code by t.Above is the one below.
func EncodeStochastic8(codes []uint8, x []float32, random []uint16, t *Codes8, inv float32) {
	same(len(codes), len(x), len(random))
	encodeStochastic8(codes, x, random, t.words(), inv)
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
		codes[i] = notZero8(v, codeOf8(t, v))
	}
}

func encodeStochastic8Go(codes []uint8, x []float32, random []uint16, t *[words8]uint32, inv float32) {
	for i, v := range x {
		v *= inv
		code := codeOf8(t, v)
		below := math.Float32frombits(t[code])
		part := float32(random[i])*0x1p-16 + 0x1p-17 // exact
		if v >= below+float32((math.Float32frombits(t[above8+code])-below)*part) {
			code++
		}
		codes[i] = notZero8(v, code)
	}
}

// codeOf8 returns the code of v by the tables.
func codeOf8(t *[words8]uint32, v float32) uint32 {
	bits := math.Float32bits(v)
	at := min(max(int(bits<<1>>17), LeastBucket8), MostBucket8) - LeastBucket8
	if bits>>31 != 0 {
		at += Buckets8
	}
	code := t[first8+at]
	if v > math.Float32frombits(t[above8+code]) {
		code++
	}
	return code
}

// notZero8 returns the code of v, which is not 0 if v is above 0.
func notZero8(v float32, code uint32) uint8 {
	if v > 0 {
		code = max(code, 1)
	}
	return uint8(code)
}
