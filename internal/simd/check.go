package simd

import "fmt"

// same panics unless the two lengths agree with n.
func same(n, a, b int) {
	if a != n || b != n {
		badLengths(n, a, b)
	}
}

// badLengths is separate so that same stays small enough to inline.
func badLengths(n, a, b int) {
	panic(fmt.Sprintf("simd: slices of one call have different lengths: %d, %d, %d", n, a, b))
}
