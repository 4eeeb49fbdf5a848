package gemm

// DType is the type of a stored element. The types of a program would serve too, but
// these index the tables of kernels, and F32 is the zero value.
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
