package safetensors

import (
	"fmt"
	"math/bits"
	"strings"
)

// DType is an element type. The order of the constants is the reference's:
// by rising alignment, which is what a writer sorts by.
type DType uint8

// The element types of the format.
const (
	BOOL DType = iota
	F4
	F6E2M3
	F6E3M2
	U8
	I8
	F8E5M2
	F8E4M3
	F8E8M0
	F8E4M3FNUZ
	F8E5M2FNUZ
	I16
	U16
	F16
	BF16
	I32
	U32
	F32
	C64
	F64
	I64
	U64
)

var dtypes = [...]struct {
	name string
	bits int
}{
	BOOL: {"BOOL", 8}, F4: {"F4", 4}, F6E2M3: {"F6_E2M3", 6}, F6E3M2: {"F6_E3M2", 6},
	U8: {"U8", 8}, I8: {"I8", 8},
	F8E5M2: {"F8_E5M2", 8}, F8E4M3: {"F8_E4M3", 8}, F8E8M0: {"F8_E8M0", 8},
	F8E4M3FNUZ: {"F8_E4M3FNUZ", 8}, F8E5M2FNUZ: {"F8_E5M2FNUZ", 8},
	I16: {"I16", 16}, U16: {"U16", 16}, F16: {"F16", 16}, BF16: {"BF16", 16},
	I32: {"I32", 32}, U32: {"U32", 32}, F32: {"F32", 32},
	C64: {"C64", 64}, F64: {"F64", 64}, I64: {"I64", 64}, U64: {"U64", 64},
}

// String is the name the format uses, such as "BF16".
func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// Bits is the size of one element in bits; it is below 8 for F4 and F6.
func (d DType) Bits() int {
	if int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].bits
}

// ParseDType is the inverse of String; the error lists the known names.
func ParseDType(name string) (DType, error) {
	for d := range dtypes {
		if dtypes[d].name == name {
			return DType(d), nil
		}
	}
	names := make([]string, len(dtypes))
	for d := range dtypes {
		names[d] = dtypes[d].name
	}
	return 0, fmt.Errorf("unknown dtype %q; known are %s", name, strings.Join(names, " "))
}

// maxBytes bounds the data of one file, so that offsets fit int64 on every path.
const maxBytes = 1 << 62

// ByteSize is the number of bytes a tensor of this type and shape fills.
// It is an error if a dimension is negative, if the product overflows, or if
// elements of less than a byte do not fill whole bytes. As in the reference an
// overflow is one even where a later dimension is 0.
func (d DType) ByteSize(shape []int) (int64, error) {
	if d.Bits() == 0 {
		return 0, fmt.Errorf("unknown dtype %s", d)
	}
	n := uint64(1)
	for _, dim := range shape {
		if dim < 0 {
			return 0, fmt.Errorf("shape %v has a negative dimension", shape)
		}
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 {
			return 0, fmt.Errorf("shape %v overflows: more than 2^64 elements", shape)
		}
		n = lo
	}
	hi, lo := bits.Mul64(n, uint64(d.Bits()))
	if hi != 0 || lo > maxBytes {
		return 0, fmt.Errorf("shape %v of %s overflows: more than 2^62 bits", shape, d)
	}
	if lo%8 != 0 {
		return 0, fmt.Errorf("shape %v of %s fills %d bits, which is not a whole number of bytes", shape, d, lo)
	}
	return int64(lo / 8), nil
}
