package simd

import "math"

// BF16ToF32 widens bfloat16 to float32, exactly.
func BF16ToF32(dst []float32, src []uint16) {
	same(len(dst), len(src), len(src))
	bf16ToF32(dst, src)
}

// F32ToBF16 rounds to bfloat16, to nearest with ties to even. NaN stays NaN,
// made quiet.
func F32ToBF16(dst []uint16, src []float32) {
	same(len(dst), len(src), len(src))
	f32ToBF16(dst, src)
}

// F16ToF32 widens IEEE float16 to float32, exactly.
func F16ToF32(dst []float32, src []uint16) {
	same(len(dst), len(src), len(src))
	f16ToF32(dst, src)
}

// F32ToF16 rounds to IEEE float16, to nearest with ties to even: 65520 and
// above become Inf, small values subnormal. NaN stays NaN, made quiet.
func F32ToF16(dst []uint16, src []float32) {
	same(len(dst), len(src), len(src))
	f32ToF16(dst, src)
}

// RoundBF16 rounds to the nearest bfloat16 value, kept as float32.
func RoundBF16(dst, src []float32) {
	same(len(dst), len(src), len(src))
	roundBF16(dst, src)
}

// RoundF16 rounds to the nearest float16 value, kept as float32.
func RoundF16(dst, src []float32) {
	same(len(dst), len(src), len(src))
	roundF16(dst, src)
}

// I32ToF32 converts integers, to nearest with ties to even.
func I32ToF32(dst []float32, src []int32) {
	same(len(dst), len(src), len(src))
	i32ToF32(dst, src)
}

// toBF16 adds half of the last kept place, less one if that place is even
// already, and cuts.
func toBF16(x float32) uint16 {
	u := math.Float32bits(x)
	if u&^signBit > expMask {
		return uint16(u>>16) | 1<<6
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

func toF16(x float32) uint16 {
	u := math.Float32bits(x)
	sign := uint16(u >> 16 & 0x8000)
	u &^= signBit
	switch {
	case u > expMask: // NaN: quiet, top of the payload kept
		return sign | 0x7e00 | uint16(u>>13&0x3ff)
	case u >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case u >= 0x38800000: // normal: rebias the exponent from 127 to 15, round at bit 13
		return sign | uint16((u-112<<23+0xfff+u>>13&1)>>13)
	}
	// Subnormal: adding 0.5 leaves the result in units of 2^-24 in the low bits,
	// rounded to even by the addition.
	return sign | uint16(math.Float32bits(math.Float32frombits(u)+0.5)-0x3f000000)
}

func fromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	e, frac := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch {
	case e == 31 && frac != 0: // NaN, made quiet as the instruction does
		return math.Float32frombits(sign | expMask | 1<<22 | frac<<13)
	case e == 31:
		return math.Float32frombits(sign | expMask)
	case e == 0: // zero or subnormal: frac * 2^-24, exact
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	}
	return math.Float32frombits(sign | (e+112)<<23 | frac<<13)
}

func bf16ToF32Go(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = fromBF16(h)
	}
}

func f32ToBF16Go(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = toBF16(v)
	}
}

func f16ToF32Go(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = fromF16(h)
	}
}

func f32ToF16Go(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = toF16(v)
	}
}

func roundBF16Go(dst, src []float32) {
	for i, v := range src {
		dst[i] = fromBF16(toBF16(v))
	}
}

func roundF16Go(dst, src []float32) {
	for i, v := range src {
		dst[i] = fromF16(toF16(v))
	}
}

func i32ToF32Go(dst []float32, src []int32) {
	for i, v := range src {
		dst[i] = float32(v)
	}
}
