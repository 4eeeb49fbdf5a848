package inference

import (
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
