package engine

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// Tensor is the host's view of a value.
type Tensor struct {
	Name string
	Type graph.Type
	Data []byte
}

// F32 returns a view of the elements of an F32 tensor.
func (t Tensor) F32() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/4)
}

// I32 returns a view of the elements of an I32 tensor.
func (t Tensor) I32() []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/4)
}

// U16 returns a view of the elements of a 16-bit tensor.
func (t Tensor) U16() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(t.Data))), len(t.Data)/2)
}

// Float64s returns the elements of any tensor; a float64 holds them exactly.
func (t Tensor) Float64s() []float64 {
	out := make([]float64, t.Type.Shape.Elems())
	switch t.Type.DType {
	case graph.I32:
		for i, e := range t.I32() {
			out[i] = float64(e)
		}
		return out
	case graph.U8:
		for i, e := range t.Data {
			out[i] = float64(e)
		}
		return out
	}
	for i, e := range t.Floats() {
		out[i] = float64(e)
	}
	return out
}

// Floats returns the elements of a floating-point or quantized tensor, as a view if they
// are F32.
func (t Tensor) Floats() []float32 {
	if m, ok := t.Type.Quantized(); ok {
		x := make([]float32, m.Elems())
		m.Decode(x, t.Data, 0)
		return x
	}
	if t.Type.DType == graph.F32 {
		return t.F32()
	}
	x := make([]float32, len(t.U16()))
	if t.Type.DType == graph.BF16 {
		simd.BF16ToF32(x, t.U16())
	} else {
		simd.F16ToF32(x, t.U16())
	}
	return x
}

// SetFloat64s writes elems, rounded to the format of t.
func (t Tensor) SetFloat64s(elems []float64) {
	switch t.Type.DType {
	case graph.I32:
		for i, e := range elems {
			t.I32()[i] = int32(e)
		}
		return
	case graph.U8:
		for i, e := range elems {
			t.Data[i] = uint8(e)
		}
		return
	}
	full := make([]float32, len(elems))
	for i, e := range elems {
		full[i] = float32(e)
	}
	t.SetFloats(full)
}

// SetFloats writes elems, rounded to the format of t.
func (t Tensor) SetFloats(elems []float32) {
	if m, ok := t.Type.Quantized(); ok {
		m.Encode(t.Data, elems)
		return
	}
	switch t.Type.DType {
	case graph.BF16:
		simd.F32ToBF16(t.U16(), elems)
	case graph.F16:
		simd.F32ToF16(t.U16(), elems)
	default:
		copy(t.F32(), elems)
	}
}
