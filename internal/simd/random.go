package simd

import (
	"math"
	"math/bits"
	"unsafe"
)

// The random functions are Philox4x32-10 (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", 2011). Element i of stream (seed, stream) is
// word i mod 4 of the block with key seed and counter (i/4, stream), 64 bits
// each: a pure function of (seed, stream, i), the same at every level.

// Philox writes elements start, start+1, ... of a stream: 32 random bits each.
func Philox(dst []uint32, seed, stream, start uint64) {
	block := start / 4
	if skip := int(start % 4); skip != 0 {
		w := philoxBlock(seed, stream, block)
		dst = dst[copy(dst, w[skip:]):]
		block++
	}
	whole := len(dst) &^ 3
	philox(dst[:whole], seed, stream, block)
	if whole < len(dst) {
		w := philoxBlock(seed, stream, block+uint64(whole/4))
		copy(dst[whole:], w[:])
	}
}

// UniformF32 writes elements start, ... of a stream as numbers in [0, 1): the
// upper 24 bits of the Philox element, times 2^-24.
func UniformF32(dst []float32, seed, stream, start uint64) {
	for len(dst) > 0 {
		n := min(len(dst), randomChunk)
		Philox(asBits(dst[:n]), seed, stream, start)
		uniform(dst[:n])
		dst, start = dst[n:], start+uint64(n)
	}
}

// randomChunk is the length up to which words are made before they are turned
// into numbers, so that they stay in the first-level cache.
const randomChunk = 2048

// DropoutMask writes 1/keepProb where element i of UniformF32's stream is below
// keepProb, and 0 elsewhere.
func DropoutMask(dst []float32, seed, stream, start uint64, keepProb float32) {
	for len(dst) > 0 {
		n := min(len(dst), randomChunk)
		Philox(asBits(dst[:n]), seed, stream, start)
		dropout(dst[:n], keepProb, 1/keepProb)
		dst, start = dst[n:], start+uint64(n)
	}
}

// NormalF32 writes elements start, ... of a stream of normal numbers (mean 0,
// variance 1) by the method of Box and Muller (1958). Philox elements 2j and
// 2j+1 give u = (upper 24 bits + 1) * 2^-24 and t = upper 24 bits * 2^-24, and
// these give normal elements 2j = sqrt(-2 ln u) * cos(2 pi t) and 2j+1, the
// same with sin. The result is below 5.8 in size and the same at every level.
func NormalF32(dst []float32, seed, stream, start uint64) {
	if start%2 != 0 && len(dst) > 0 {
		dst[0] = normalAt(seed, stream, start)
		dst, start = dst[1:], start+1
	}
	for len(dst) > 1 {
		n := min(len(dst)&^1, randomChunk)
		Philox(asBits(dst[:n]), seed, stream, start)
		boxMuller(dst[:n])
		dst, start = dst[n:], start+uint64(n)
	}
	if len(dst) > 0 {
		dst[0] = normalAt(seed, stream, start)
	}
}

// asBits views x as its bits, so that the random words need no buffer.
func asBits(x []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// philoxBlock returns one block of four words.
func philoxBlock(seed, stream, block uint64) [4]uint32 {
	c := [4]uint32{uint32(block), uint32(block >> 32), uint32(stream), uint32(stream >> 32)}
	return philox4x32(c, [2]uint32{uint32(seed), uint32(seed >> 32)})
}

// philox4x32 is the ten-round bijection of the paper.
func philox4x32(c [4]uint32, k [2]uint32) [4]uint32 {
	for range 10 {
		hi0, lo0 := bits.Mul32(0xd2511f53, c[0])
		hi1, lo1 := bits.Mul32(0xcd9e8d57, c[2])
		c = [4]uint32{hi1 ^ c[1] ^ k[0], lo1, hi0 ^ c[3] ^ k[1], lo0}
		k[0] += 0x9e3779b9 // golden ratio
		k[1] += 0xbb67ae85 // sqrt(3) - 1
	}
	return c
}

// philoxGo fills whole blocks; len(dst) is a multiple of 4.
func philoxGo(dst []uint32, seed, stream, block uint64) {
	for i := 0; i < len(dst); i += 4 {
		w := philoxBlock(seed, stream, block)
		copy(dst[i:], w[:])
		block++
	}
}

func uniformGo(dst []float32) {
	for i, v := range dst {
		dst[i] = float32(math.Float32bits(v)>>8) * 0x1p-24
	}
}

func dropoutGo(dst []float32, keep, scale float32) {
	for i, v := range dst {
		u := float32(math.Float32bits(v)>>8) * 0x1p-24
		dst[i] = 0
		if u < keep {
			dst[i] = scale
		}
	}
}
