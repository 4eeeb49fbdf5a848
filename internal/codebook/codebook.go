// Package codebook holds the 256 numbers that 8-bit moments are stored as: the dynamic
// data type of Dettmers (2016, arXiv:1511.04561; 2022, arXiv:2110.02861), as bitsandbytes
// defines it. A block of numbers is divided by its largest magnitude, and each is
// replaced by the index of the nearest entry.
package codebook

import (
	"math"
	"slices"

	"github.com/snug-ml/snug/internal/simd"
)

// Book is a set of 256 numbers.
type Book struct{ simd.Codes8 }

// The codebooks of first and of second moments.
var (
	Signed   = dynamic(true)
	Unsigned = dynamic(false)
)

// dynamic builds the numbers: for each power of ten from 1e-6 to 1 the midpoints of equal
// parts of [0.1, 1], twice as many as for the previous power, plus 0 and 1.
func dynamic(signed bool) *Book {
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
	b := &Book{}
	for i, v := range values {
		b.Values[i] = float32(v)
	}
	for i := range 255 {
		b.Above[i] = (b.Values[i] + b.Values[i+1]) / 2
	}
	b.Above[255] = float32(math.Inf(1))
	for i := range simd.Buckets8 {
		x := math.Float32frombits(uint32(simd.LeastBucket8+i) << 16)
		if i == 0 {
			x = 0 // everything below is in this bucket too
		}
		b.First[i] = b.search(x)
		// For negative numbers the smallest in the bucket has the largest magnitude.
		b.First[simd.Buckets8+i] = b.search(-math.Float32frombits(uint32(simd.LeastBucket8+i+1)<<16 - 1))
	}
	return b
}

// search returns the code nearest to x, the lower one of a tie.
func (b *Book) search(x float32) uint32 {
	i, _ := slices.BinarySearch(b.Above[:255], x)
	return uint32(i)
}

// Decode writes the numbers that codes stand for in a block of the given scale.
func (b *Book) Decode(dst []float32, codes []uint8, scale float32) {
	simd.Decode8(dst, codes, &b.Codes8, scale)
}

// Encode writes the codes of a block and returns its scale, the largest magnitude in it.
// A number above 0 never gets the code of 0 if that is the lowest.
func (b *Book) Encode(codes []uint8, x []float32) (scale float32) {
	scale = simd.MaxMagnitude(x)
	inv := float32(0)
	if scale > 0 {
		inv = 1 / scale
	}
	simd.Encode8(codes, x, &b.Codes8, inv)
	return scale
}
