package data

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestPermutationIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 3000).Draw(t, "n")
		p := NewPermutation(n, rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "stream"))
		seen := make([]bool, n)
		for i := range n {
			x := p.At(i)
			if x < 0 || x >= n || seen[x] {
				t.Fatalf("At(%d) = %d: out of range or seen before", i, x)
			}
			seen[x] = true
		}
	})
}

func TestPermutationLarge(t *testing.T) {
	for _, n := range []int64{1 << 40, 1<<40 + 1, math.MaxInt64} {
		p := NewPermutation(n, 1, 2)
		for i := range int64(1000) {
			if x := p.At(n - 1 - i); x < 0 || x >= n {
				t.Fatalf("n=%d: %d", n, x)
			}
		}
	}
}

// Every element should land in every place equally often over the epochs, and
// neighbors should not stay neighbors. Chi-square with (n-1)^2 degrees of
// freedom, bound at five standard deviations.
func TestPermutationIsUniform(t *testing.T) {
	const n, epochs = 20, 20_000
	var count [n][n]float64
	neighbors := 0
	for e := range uint64(epochs) {
		p := NewPermutation(n, 42, e)
		last := int64(-2)
		for i := range int64(n) {
			x := p.At(i)
			count[i][x]++
			if x == last+1 {
				neighbors++
			}
			last = x
		}
	}
	var chi float64
	const want = float64(epochs) / n
	for _, row := range count {
		for _, c := range row {
			chi += (c - want) * (c - want) / want
		}
	}
	const dof = (n - 1) * (n - 1)
	if bound := dof + 5*math.Sqrt(2*dof); chi > bound {
		t.Errorf("chi-square %.0f over %.0f: places are not uniform", chi, bound)
	}
	// A random order has (n-1)/n ascending neighbors on average.
	if got, want := float64(neighbors)/epochs, float64(n-1)/n; math.Abs(got-want) > 0.05 {
		t.Errorf("%.3f ascending neighbors an epoch, a random order has %.3f", got, want)
	}
}

func TestPermutationDependsOnKey(t *testing.T) {
	same := func(a, b Permutation) (n int) {
		for i := range int64(1000) {
			if a.At(i) == b.At(i) {
				n++
			}
		}
		return n
	}
	base := NewPermutation(1000, 1, 0)
	for _, key := range [][2]uint64{{2, 0}, {1, 1}, {0, 1}} {
		if n := same(base, NewPermutation(1000, key[0], key[1])); n > 12 {
			t.Errorf("seed and stream %v: %d of 1000 places equal those of another key", key, n)
		}
	}
}

func BenchmarkPermutation(b *testing.B) {
	p := NewPermutation(1_000_003, 1, 0)
	for i := range int64(b.N) {
		p.At(i % 1_000_003)
	}
}
