package plan

import (
	"math"
	"slices"
	"testing"
)

// TestDivisors: the micro-batches of a search are the divisors in a range, and even the largest integer as a
// batch does not cause a loop over all numbers below it.
func TestDivisors(t *testing.T) {
	for n := 1; n <= 400; n++ {
		for _, least := range []int{1, 2, 7} {
			for _, most := range []int{n, 20} {
				var want []int
				for i := least; i <= min(n, most); i++ {
					if n%i == 0 {
						want = append(want, i)
					}
				}
				if got := divisors(n, least, most); !slices.Equal(got, want) {
					t.Errorf("divisors of %d from %d to %d: %v, want %v", n, least, most, got, want)
				}
			}
			p, half := Planner{LeastMicroBatch: least}, 0
			for d := n / 2; d >= least && half == 0; d-- {
				if n%d == 0 {
					half = d
				}
			}
			s, ok := p.halve(Settings{MicroBatch: n, Accumulation: 3})
			if ok != (half > 0) || ok && (s.MicroBatch != half || s.Accumulation != 3*n/half) {
				t.Errorf("%d halved, at least %d: %v %v, want %d", n, least, s, ok, half)
			}
		}
	}
	const prime = 1_000_000_007 * 1_000_000_009
	if got := divisors(prime, 1, math.MaxInt); len(got) != 4 {
		t.Errorf("divisors of a product of two primes: %v", got)
	}
}
