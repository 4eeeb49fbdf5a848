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
type Book struct{ simd.Codes8 }

// Nearest is a book whose entries stand for the numbers that are nearest to them.
type Nearest struct{ Book }

// Stochastic is a book of numbers from 0 on, in which a number is replaced by the entry
// above or below it, with probabilities given by the distances.
type Stochastic struct{ Book }

// The codebooks of first and of second moments.
var (
	Signed   = nearest(numbers(true))
	Unsigned = stochastic(numbers(false))
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

func nearest(values [256]float32) *Nearest {
	b := &Nearest{}
	b.Values = values
	for i := range 255 {
		b.Above[i] = (values[i] + values[i+1]) / 2
	}
	b.complete()
	return b
}

func stochastic(values [256]float32) *Stochastic {
	b := &Stochastic{}
	b.Values = values
	copy(b.Above[:], values[1:])
	b.complete()
	return b
}

// complete fills in what follows from Above.
func (b *Book) complete() {
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
}

// search returns the code of x by Above, the lower one of a tie.
func (b *Book) search(x float32) uint32 {
	i, _ := slices.BinarySearch(b.Above[:255], x)
	return uint32(i)
}

// Decode writes the numbers that codes stand for in a block of the given scale.
func (b *Book) Decode(dst []float32, codes []uint8, scale float32) {
	simd.Decode8(dst, codes, &b.Codes8, scale)
}

// Encode writes the codes of a block and returns its scale, the largest magnitude in it.
func (b *Nearest) Encode(codes []uint8, x []float32) (scale float32) {
	scale, inv := scaleOf(x)
	simd.Encode8(codes, x, &b.Codes8, inv)
	return scale
}

// Encode writes the codes of a block and returns its scale, the largest number in it. A
// number above 0 never gets the code of 0. random are as many random bits.
func (b *Stochastic) Encode(codes []uint8, x []float32, random []uint16) (scale float32) {
	scale, inv := scaleOf(x)
	simd.EncodeStochastic8(codes, x, random, &b.Codes8, inv)
	return scale
}

func scaleOf(x []float32) (scale, inverse float32) {
	if scale = simd.MaxMagnitude(x); scale > 0 {
		inverse = 1 / scale
	}
	return scale, inverse
}
