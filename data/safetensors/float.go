package safetensors

import (
	"encoding/binary"
	"math"

	"github.com/snug-ml/snug/internal/float16"
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
		return errorf(t.Name, "%s cannot be read as float32; want F32, F16, BF16 or F64", t.DType)
	}
	if len(t.Data) != len(dst)*width {
		return errorf(t.Name, "shape %v has %d elements, its destination %d", t.Shape, len(t.Data)/width, len(dst))
	}
	switch t.DType {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(t.Data[4*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = float16.FromBF16(le.Uint16(t.Data[2*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = float16.FromF16(le.Uint16(t.Data[2*i:]))
		}
	default: // F64
		for i := range dst {
			dst[i] = float32(math.Float64frombits(le.Uint64(t.Data[8*i:])))
		}
	}
	return nil
}
