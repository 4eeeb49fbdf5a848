package graph

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/snug-ml/snug/internal/quant"
	"github.com/snug-ml/snug/internal/size"
)

// DType is the storage type of a tensor's elements. Arithmetic is in float32 or better
// whatever the storage: BF16 and F16 are storage formats.
type DType uint8

// The storage types a program can hold.
const (
	Invalid DType = iota
	F32           // IEEE 754 binary32
	BF16          // bfloat16: binary32 with the low 16 bits rounded away
	F16           // IEEE 754 binary16
	I32           // 32-bit signed integer: ids, labels, lengths, counters
	U8            // 8-bit codes of quantized states
	NF4           // frozen matrices in 4 bits; see package quant
	Int8          // frozen matrices in 8 bits with a scale per row; see package quant
)

var dtypeNames = [...]string{"invalid", "f32", "bf16", "f16", "i32", "u8", "nf4", "int8"}

func (d DType) String() string {
	if int(d) < len(dtypeNames) {
		return dtypeNames[d]
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Size is the number of bytes of one element; 0 for formats whose elements share scales.
func (d DType) Size() int64 {
	switch d {
	case F32, I32:
		return 4
	case BF16, F16:
		return 2
	case U8:
		return 1
	}
	return 0
}

// Float reports whether d is a floating-point format.
func (d DType) Float() bool { return d == F32 || d == BF16 || d == F16 }

// Quantized reports whether d is a format of codes with scales that elements share.
func (d DType) Quantized() bool { return d == NF4 || d == Int8 }

// Half reports whether d is one of the 16-bit formats.
func (d DType) Half() bool { return d == BF16 || d == F16 }

// Shape is the extent of each dimension, outermost first. The empty shape is a scalar.
type Shape []int

// Elems is the number of elements, 1 for a scalar.
func (s Shape) Elems() int64 { return size.Product(s...) }

// Rows is the number of rows when all but the last dimension are joined.
func (s Shape) Rows() int {
	if len(s) == 0 {
		return 1
	}
	return int(s[:len(s)-1].Elems())
}

// Last is the extent of the innermost dimension, 1 for a scalar.
func (s Shape) Last() int {
	if len(s) == 0 {
		return 1
	}
	return s[len(s)-1]
}

// Equal reports whether both shapes have the same dimensions.
func (s Shape) Equal(t Shape) bool {
	if len(s) != len(t) {
		return false
	}
	for i := range s {
		if s[i] != t[i] {
			return false
		}
	}
	return true
}

// Clone returns a copy that shares nothing.
func (s Shape) Clone() Shape { return append(Shape(nil), s...) }

func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(d))
	}
	b.WriteByte(']')
	return b.String()
}

// Broadcast returns the common shape of s and t by NumPy's rule: dimensions are matched
// from the innermost, and an extent of 1 (or none) stretches.
func Broadcast(s, t Shape) (Shape, error) {
	n := max(len(s), len(t))
	out := make(Shape, n)
	for i := range n {
		a, b := 1, 1
		if j := len(s) - n + i; j >= 0 {
			a = s[j]
		}
		if j := len(t) - n + i; j >= 0 {
			b = t[j]
		}
		switch {
		case a == b, b == 1:
			out[i] = a
		case a == 1:
			out[i] = b
		default:
			return nil, fmt.Errorf("shapes %v and %v do not broadcast: %d against %d", s, t, a, b)
		}
	}
	return out, nil
}

// Strides are the element strides with which a tensor of shape s is read when
// it is broadcast to shape t: 0 along each stretched dimension.
func (s Shape) Strides(t Shape) []int {
	st := make([]int, len(t))
	run := 1
	for i := len(s) - 1; i >= 0; i-- {
		j := len(t) - len(s) + i
		if s[i] != 1 {
			st[j] = run
		}
		run *= s[i]
	}
	return st
}

// Type is what is known of a value before it exists.
type Type struct {
	DType DType
	Shape Shape
}

// T is shorthand for a Type.
func T(d DType, dims ...int) Type { return Type{d, Shape(dims)} }

// Bytes is the size of the value's storage.
func (t Type) Bytes() int64 {
	if m, ok := t.Quantized(); ok {
		return int64(m.Bytes())
	}
	return size.Product(t.Shape.Elems(), t.DType.Size())
}

// Quantized says how a matrix of a quantized format is stored; ok is false for others.
func (t Type) Quantized() (m quant.Matrix, ok bool) {
	if !t.DType.Quantized() {
		return m, false
	}
	m = quant.Matrix{Format: quant.NF4, Rows: t.Shape.Rows(), Cols: t.Shape.Last()}
	if t.DType == Int8 {
		m.Format = quant.Int8
	}
	return m, true
}

// MostBytes is the size of the largest tensor that a graph may have: more than the
// memory of any machine, yet small enough that the sizes of all tensors of a
// program add up without overflowing an int64.
const MostBytes = 1 << 43

// TooLarge reports a tensor that no machine can hold.
type TooLarge struct{ Type Type }

func (e TooLarge) Error() string {
	return fmt.Sprintf("a tensor %v is larger than %d TiB, more than any machine has", e.Type, MostBytes>>40)
}

// ExitCode is 3: does not fit.
func (TooLarge) ExitCode() int { return 3 }

// SettingError reports a value of a setting that the model, or the program that trains it,
// cannot have.
type SettingError struct{ Key, Problem string }

func (e SettingError) Error() string { return e.Key + ": " + e.Problem }

// ExitCode is 2: a mistake in the request.
func (SettingError) ExitCode() int { return 2 }

// fits refuses a type whose tensor no machine can hold.
func (t Type) fits() error {
	if t.Bytes() > MostBytes {
		return TooLarge{t}
	}
	return nil
}

// Equal reports whether both types are the same.
func (t Type) Equal(u Type) bool { return t.DType == u.DType && t.Shape.Equal(u.Shape) }

// With returns the type with another element type.
func (t Type) With(d DType) Type { return Type{d, t.Shape} }

func (t Type) String() string { return t.DType.String() + t.Shape.String() }
