package plan

import "testing"

// TestMostSlices: a micro-batch of any size is divided into parts whose program can be compiled.
func TestMostSlices(t *testing.T) {
	for batch, want := range map[int]int{1: 1, 2: 2, 12: 12, 256: 256, 300: 150, 509: 1, 65536: 256, 1 << 20: 256} {
		if got := mostSlices(batch); got != want {
			t.Errorf("a micro-batch of %d is cut in at most %d parts, want %d", batch, got, want)
		}
	}
}
