package gemm

import "math"

// DType is the type of a stored element.
type DType uint8

// The element types of operands. Products are always summed in float32.
const (
	F32 DType = iota
	BF16
	F16
)

// Size returns the bytes of one element.
func (t DType) Size() int {
	if t == F32 {
		return 4
	}
	return 2
}

func (t DType) String() string {
	switch t {
	case F32:
		return "f32"
	case BF16:
		return "bf16"
	case F16:
		return "f16"
	}
	return "unknown"
}

// bf16ToF32 widens a bfloat16.
func bf16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// f32ToBF16 rounds to nearest even; NaN stays NaN.
func f32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// f16ToF32 widens an IEEE 754 binary16.
func f16ToF32(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&1023
	switch exp {
	case 0: // zero and denormals: frac * 2^-24 is exact
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	case 31:
		if frac != 0 {
			frac |= 0x200 // quiet, as the hardware does
		}
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// f32ToF16 rounds to nearest even; overflow gives infinity, NaN stays NaN.
func f32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign, a := uint16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case a > 0x7f800000:
		return sign | 0x7e00 | uint16(a>>13)&0x3ff
	case a >= 0x477ff000: // rounds to 65536 or more
		return sign | 0x7c00
	case a < 0x38800000: // below 2^-14: denormal; adding 0.5 rounds at 2^-24
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+0.5)-0x3f000000)
	}
	return sign | uint16((a-0x38000000+0xfff+a>>13&1)>>13)
}
