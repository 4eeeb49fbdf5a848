// Package codebook holds the 256 numbers that 8-bit moments are stored as: the dynamic
// data type of Dettmers (2016, arXiv:1511.04561; 2022, arXiv:2110.02861), as bitsandbytes
// defines it. A block of numbers is divided by its largest magnitude, and each is
// replaced by the index of an entry next to it.
package codebook

import (
	"math"
	"slices"

	"github.com/snug-ml/snug/internal/simd"
)

// Book is a set of 256 numbers.
type Book struct {
	Values [256]float32 // in ascending order
	// Above[i] is the largest number whose code is i, before stochastic rounding.
	Above [256]float32
}

// SignedBook is the codebook of first moments, which are rounded to nearest.
type SignedBook struct{ Book }

// UnsignedBook is the codebook of second moments, which are rounded to the entry above or
// below, with probabilities given by the distances.
type UnsignedBook struct{ Book }

// The codebooks of first and of second moments.
var (
	Signed   = signed(numbers(true))
	Unsigned = unsigned(numbers(false))
)

// numbers builds them: for each power of ten from 1e-6 to 1 the midpoints of equal
// parts of [0.1, 1], twice as many as for the previous power, plus 0 and 1.
func numbers(signed bool) (list [256]float32) {
	const exponents = 7
	values := []float64{0, 1}
	for i := range exponents {
		parts := 1 << i
		if !signed {
			parts *= 2
		}
		scale := math.Pow(10, float64(i-exponents+1))
		for k := range parts {
			v := scale * (0.1 + 0.9*(float64(k)+0.5)/float64(parts))
			values = append(values, v)
			if signed {
				values = append(values, -v)
			}
		}
	}
	slices.Sort(values)
	for i, v := range values {
		list[i] = float32(v)
	}
	return list
}

func signed(values [256]float32) *SignedBook {
	b := &SignedBook{Book{Values: values}}
	for i := range 255 {
		b.Above[i] = (values[i] + values[i+1]) / 2
	}
	b.Above[255] = float32(math.Inf(1))
	return b
}

func unsigned(values [256]float32) *UnsignedBook {
	b := &UnsignedBook{Book{Values: values}}
	copy(b.Above[:], values[1:])
	b.Above[255] = float32(math.Inf(1))
	return b
}

// Decode writes the numbers that codes stand for in a block of the given scale.
func (*SignedBook) Decode(dst []float32, codes []uint8, scale float32) {
	simd.DecodeSigned8(dst, codes, scale)
}

// Decode writes the numbers that codes stand for in a block of the given scale.
func (*UnsignedBook) Decode(dst []float32, codes []uint8, scale float32) {
	simd.DecodeUnsigned8(dst, codes, scale)
}

// Encode writes the codes of a block and returns its scale, the largest magnitude in it.
func (*SignedBook) Encode(codes []uint8, x []float32) (scale float32) {
	scale, inv := scaleOf(x)
	simd.EncodeSigned8(codes, x, inv)
	return scale
}

// Encode writes the codes of a block and returns its scale, the largest number in it. A
// number above 0 never gets the code of 0. random are as many random bits.
func (*UnsignedBook) Encode(codes []uint8, x []float32, random []uint16) (scale float32) {
	scale, inv := scaleOf(x)
	simd.EncodeUnsigned8(codes, x, random, inv)
	return scale
}

func scaleOf(x []float32) (scale, inverse float32) {
	if scale = simd.MaxMagnitude(x); scale > 0 {
		inverse = 1 / scale
	}
	return scale, inverse
}
