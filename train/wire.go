package train

import (
	"unsafe"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// wire is the format in which ranks send each other gradients: [graph.F32], [graph.BF16] or
// [graph.Int8], in which blocks of elements share a scale. Everything sent is rounded, even what a rank keeps for itself, so that
// sums do not depend on which rank computed what.
type wire graph.DType

// wireOf returns the format of a job; F32 if none is set.
func wireOf(d graph.DType) wire {
	if d == graph.BF16 || d == graph.Int8 {
		return wire(d)
	}
	return wire(graph.F32)
}

// bytes returns the size of n bytes of float32 in the format.
func (w wire) bytes(n int64) int64 {
	switch w {
	case wire(graph.BF16):
		return n / 2
	case wire(graph.Int8):
		return codedBytes(n / 4)
	}
	return n
}

// wireTile is how many elements are converted at a time.
const wireTile = 1024

// pack rounds float32 elements to the nearest, ties to even, in place: the result is the
// first part of b.
func (w wire) pack(b []byte) []byte {
	switch w {
	case wire(graph.Int8):
		return encode(b)
	case wire(graph.F32):
		return b
	}
	x, y := floats(b), halves(b)[:len(b)/4]
	var tile [wireTile]uint16
	for a := 0; a < len(x); a += wireTile {
		n := min(wireTile, len(x)-a)
		simd.F32ToBF16(tile[:n], x[a:a+n])
		copy(y[a:], tile[:n]) // ends before x[a+n:]
	}
	return b[:len(b)/2]
}

// unpack is the reverse of pack: its result becomes all of b.
func (w wire) unpack(b []byte) {
	switch w {
	case wire(graph.Int8):
		decode(b)
		return
	case wire(graph.F32):
		return
	}
	x, y := floats(b), halves(b)[:len(b)/4]
	var tile [wireTile]uint16
	for end := len(x); end > 0; {
		a := (end - 1) / wireTile * wireTile
		n := copy(tile[:], y[a:end])
		simd.BF16ToF32(x[a:end], tile[:n]) // begins after y[:a]
		end = a
	}
}

// add adds what was sent to a sum, or makes it the sum if it is the first.
func (w wire) add(sum, sent []byte, first bool) {
	to := floats(sum)
	switch {
	case w == wire(graph.F32) && first:
		copy(sum, sent)
	case w == wire(graph.F32):
		simd.Add(to, to, floats(sent))
	case w == wire(graph.Int8):
		addCoded(to, sent, first)
	case first:
		simd.BF16ToF32(to, halves(sent))
	default:
		from := halves(sent)
		var tile [wireTile]float32
		for a := 0; a < len(to); a += wireTile {
			n := min(wireTile, len(to)-a)
			simd.BF16ToF32(tile[:n], from[a:a+n])
			simd.Add(to[a:a+n], to[a:a+n], tile[:n])
		}
	}
}

func floats(b []byte) []float32 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

func halves(b []byte) []uint16 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), len(b)/2)
}
