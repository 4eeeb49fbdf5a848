package data

import "math/bits"

// Permutation is a pseudo-random order of 0..n-1 that needs no memory: At(i)
// is computed from the key alone, so a shuffled epoch of any size can be
// entered anywhere in O(1).
//
// It is a Feistel network over the smallest even number of bits that can represent n,
// walked along its cycle until the value is below n (Black and Rogaway,
// "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). Fewer than four steps
// are expected.
type Permutation struct {
	n    uint64
	half uint // bits in each half
	keys [feistelRounds]uint64
}

const feistelRounds = 6

// NewPermutation keys an order of n elements by a seed and a stream number,
// such as the epoch.
func NewPermutation(n int64, seed, stream uint64) Permutation {
	if n < 0 {
		panic("data: permutation of a negative number of elements")
	}
	p := Permutation{n: uint64(n), half: 1}
	if n > 1 {
		p.half = max(1, uint(bits.Len64(uint64(n-1))+1)/2)
	}
	state := mix64(seed) ^ mix64(stream+0x9E3779B97F4A7C15)
	for r := range p.keys {
		state += 0x9E3779B97F4A7C15
		p.keys[r] = mix64(state)
	}
	return p
}

// At returns the element at position i; i must be in [0, n).
func (p *Permutation) At(i int64) int64 {
	if uint64(i) >= p.n {
		panic("data: permutation index out of range")
	}
	mask := uint64(1)<<p.half - 1
	x := uint64(i)
	for {
		left, right := x>>p.half, x&mask
		for _, k := range p.keys {
			left, right = right, left^mix64(right^k)&mask
		}
		if x = left<<p.half | right; x < p.n {
			return int64(x)
		}
	}
}

// mix64 is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func mix64(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xBF58476D1CE4E5B9
	x ^= x >> 27
	x *= 0x94D049BB133111EB
	return x ^ x>>31
}
