// Package size multiplies sizes without overflow and prints them.
package size

import (
	"math"
	"math/bits"
)

// Product returns the product of numbers that are not negative. If an int64 cannot hold
// it, it is the largest int64, so that every comparison with a limit is right; a negative
// number (a mistake that others report) makes it 0.
func Product[T ~int | ~int64](ns ...T) int64 {
	p := uint64(1)
	for _, n := range ns {
		if n <= 0 {
			return 0
		}
	}
	for _, n := range ns {
		hi, lo := bits.Mul64(p, uint64(n))
		if hi != 0 || lo > math.MaxInt64 {
			return math.MaxInt64
		}
		p = lo
	}
	return int64(p)
}
