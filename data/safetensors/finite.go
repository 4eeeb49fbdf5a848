package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/snug-ml/snug/internal/float16"
)

// lanes locate the exponents of the values in a word of eight bytes: adding one to an
// exponent of all ones, like that of NaN and the infinities, carries into the sign bit.
type lanes struct{ exponents, one, signs uint64 }

var lanesOf = map[DType]lanes{
	F16:  {0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400, 0x8000_8000_8000_8000},
	BF16: {0x7f80_7f80_7f80_7f80, 0x0080_0080_0080_0080, 0x8000_8000_8000_8000},
	F32:  {0x7f80_0000_7f80_0000, 0x0080_0000_0080_0000, 0x8000_0000_8000_0000},
	F64:  {0x7ff0_0000_0000_0000, 0x0010_0000_0000_0000, 0x8000_0000_0000_0000},
	C64:  {0x7f80_0000_7f80_0000, 0x0080_0000_0080_0000, 0x8000_0000_8000_0000},
}

// Bad describes the values of a tensor that are NaN or infinite.
type Bad struct {
	Count int
	// First is the index of the first one, Value its value.
	First int
	Value float64
}

// NonFinite looks for values that are NaN or infinite in the bytes of a tensor.
// It runs at about memory speed. Integers and the formats of less than 16 bits
// count as finite.
func NonFinite(d DType, data []byte) (bad Bad, found bool) {
	l, ok := lanesOf[d]
	if !ok {
		return bad, false
	}
	le := binary.LittleEndian
	words, any := data[:len(data)&^7], uint64(0)
	for ; len(words) >= 32; words = words[32:] {
		w := words[:32:32]
		any |= le.Uint64(w)&l.exponents + l.one
		any |= le.Uint64(w[8:])&l.exponents + l.one
		any |= le.Uint64(w[16:])&l.exponents + l.one
		any |= le.Uint64(w[24:])&l.exponents + l.one
	}
	for ; len(words) > 0; words = words[8:] {
		any |= le.Uint64(words)&l.exponents + l.one
	}
	var rest [8]byte
	copy(rest[:], data[len(data)&^7:])
	any |= le.Uint64(rest[:])&l.exponents + l.one
	if any&l.signs == 0 {
		return bad, false
	}
	width := d.Bits() / 8
	if d == C64 {
		width = 4
	}
	for i := 0; (i+1)*width <= len(data); i++ {
		if x := valueAt(width, d, data[i*width:]); math.IsNaN(x) || math.IsInf(x, 0) {
			if bad.Count == 0 {
				bad.First, bad.Value = i*width*8/d.Bits(), x
			}
			bad.Count++
		}
	}
	return bad, true
}

// Finite refuses a tensor with values that are NaN or infinite, even after rounding to
// float32. Training would find them only at its first update, and blame the learning
// rate.
func (t Tensor) Finite() error {
	bad, found := NonFinite(t.DType, t.Data)
	if !found && t.DType == F64 {
		for i := 0; i+8 <= len(t.Data); i += 8 {
			if x := float64(float32(valueAt(8, F64, t.Data[i:]))); math.IsInf(x, 0) {
				if bad.Count == 0 {
					bad.First, bad.Value = i/8, x
				}
				bad.Count++
			}
		}
		found = bad.Count > 0
	}
	if !found {
		return nil
	}
	return &Error{Path: t.path, Tensor: t.Name, Problem: fmt.Sprintf("has %d values that are NaN or infinite, the first is %v, value %d of the tensor: the file is damaged, or the model diverged before it was saved; fetch the folder again, or use another one", bad.Count, bad.Value, bad.First)}
}

// valueAt decodes the first value of data.
func valueAt(width int, d DType, data []byte) float64 {
	le := binary.LittleEndian
	switch {
	case d == F16:
		return float64(float16.FromF16(le.Uint16(data)))
	case d == BF16:
		return float64(math.Float32frombits(uint32(le.Uint16(data)) << 16))
	case width == 4:
		return float64(math.Float32frombits(le.Uint32(data)))
	}
	return math.Float64frombits(le.Uint64(data))
}
