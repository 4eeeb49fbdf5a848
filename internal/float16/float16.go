// Package float16 converts the two 16-bit floating-point formats, bfloat16 and IEEE 754
// binary16, one number at a time with the same bits as the processor's own instructions:
// rounding is to nearest even, NaN becomes quiet.
package float16

import "math"

const (
	signBit = 1 << 31
	expMask = 0xff << 23 // the exponent field of a float32
)

// FromBF16 widens a bfloat16, which is exact.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBF16 adds half a unit in the last kept place, less one if that place is already even,
// and truncates.
func ToBF16(x float32) uint16 {
	u := math.Float32bits(x)
	if u&^signBit > expMask {
		return uint16(u>>16) | 1<<6
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// FromF16 widens a binary16, which is exact, subnormal numbers included.
func FromF16(h uint16) float32 {
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

// ToF16 rounds; 65520 and above become infinite.
func ToF16(x float32) uint16 {
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
