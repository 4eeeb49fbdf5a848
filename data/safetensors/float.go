package safetensors

import (
	"encoding/binary"
	"math"
)

// Float32s decodes the tensor into dst, whose length must be the number of
// elements. F32, F16 and BF16 are exact, F64 is rounded to nearest even; other
// types are refused.
func (t Tensor) Float32s(dst []float32) error {
	le := binary.LittleEndian
	var width int
	switch t.DType {
	case F16, BF16:
		width = 2
	case F32:
		width = 4
	case F64:
		width = 8
	default:
		return errorf(t.Name, "%s cannot be read as float32; F32, F16, BF16 and F64 can", t.DType)
	}
	if len(t.Data) != len(dst)*width {
		return errorf(t.Name, "shape %v has %d elements, the place for it %d", t.Shape, len(t.Data)/width, len(dst))
	}
	switch t.DType {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(t.Data[4*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(le.Uint16(t.Data[2*i:])) << 16)
		}
	case F16:
		for i := range dst {
			dst[i] = half(le.Uint16(t.Data[2*i:]))
		}
	default: // F64
		for i := range dst {
			dst[i] = float32(math.Float64frombits(le.Uint64(t.Data[8*i:])))
		}
	}
	return nil
}

// half widens an IEEE 754 binary16. Every value, subnormals and NaN payloads
// included, is representable in binary32.
func half(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 31
	frac := uint32(h & 0x3ff)
	switch exp {
	case 31:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case 0: // zero or subnormal: frac * 2^-24
		v := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(v))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}
