package inference

import (
	"math"
	"slices"
	"testing"
)

func TestLikeliest(t *testing.T) {
	row := []float32{1, 5, 3, 5, -2, 4}
	for n, want := range [][]int32{1: {1}, 2: {1, 3}, 3: {1, 3, 5}, 6: {1, 3, 5, 2, 0, 4}} {
		if n > 0 && want != nil && !slices.Equal(Likeliest(row, n), want) {
			t.Errorf("%d of %v: %v, want %v", n, row, Likeliest(row, n), want)
		}
	}
}

// Keys order numbers from the greatest to the least, and both zeros alike.
func TestDescending(t *testing.T) {
	zero := float32(0)
	list := []float32{float32(math.Inf(1)), math.MaxFloat32, 3, 1.5, math.SmallestNonzeroFloat32, zero, -math.SmallestNonzeroFloat32, -1.5, -3, float32(math.Inf(-1))}
	for i := range list[1:] {
		if descending(list[i]) >= descending(list[i+1]) {
			t.Errorf("%v does not come before %v", list[i], list[i+1])
		}
	}
	if descending(-zero) != descending(zero) || descending(float32(math.Copysign(0, -1))) != descending(0) {
		t.Error("zeros differ")
	}
}
