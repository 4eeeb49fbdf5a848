package simd

import (
	"math"
	"unsafe"
)

// StochasticBF16 rounds to one of the two nearest bfloat16 values, with probabilities
// given by their distances: 16 random bits are added to those of src[i], and the lower 16
// are dropped. They are the lower (i even) or upper half of Philox element (start+i)/2 of
// the stream; start is even, and words has room for half the elements, rounded up. NaN
// stays NaN, made quiet.
func StochasticBF16(dst []uint16, src []float32, words []uint32, seed, stream, start uint64) {
	same(len(dst), len(src), len(src))
	if start%2 != 0 {
		panic("simd: random halves from an odd element on")
	}
	if len(dst) == 0 {
		return
	}
	words = words[:(len(dst)+1)/2]
	Philox(words, seed, stream, start/2)
	stochasticBF16(dst, src, unsafe.Slice((*uint16)(unsafe.Pointer(&words[0])), len(dst)))
}

func stochasticBF16Go(dst []uint16, src []float32, random []uint16) {
	for i, v := range src {
		b := math.Float32bits(v)
		if v != v {
			b |= 1 << 22
		} else {
			b += uint32(random[i])
		}
		dst[i] = uint16(b >> 16)
	}
}
