package pack

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive finds the gaps among the buffers that are live together with the item by sorting them.
func naive(placed []row, it *item) (first, tightest int64) {
	var live []row
	for _, r := range placed {
		if r.start < it.end && it.start < r.end {
			live = append(live, r)
		}
	}
	slices.SortFunc(live, func(a, b row) int { return cmp.Compare(a.lo, b.lo) })
	var top int64
	first, tightest = -1, -1
	bestGap := int64(-1)
	for _, r := range live {
		if gap := r.lo - top; gap >= it.size {
			if first < 0 {
				first = top
			}
			if bestGap < 0 || gap < bestGap {
				tightest, bestGap = top, gap
			}
		}
		top = max(top, r.hi)
	}
	if first < 0 {
		return top, top
	}
	return first, tightest
}

// TestShelfAgreesWithNaive uses few sizes and short lives, so that long runs share an offset and are folded.
func TestShelfAgreesWithNaive(t *testing.T) {
	folded := 0
	rapid.Check(t, func(t *rapid.T) {
		var s shelf
		var placed []row
		for range rapid.IntRange(1, 120).Draw(t, "n") {
			start := rapid.Int32Range(0, 400).Draw(t, "start")
			it := &item{
				size:  64 * rapid.Int64Range(1, 3).Draw(t, "size"),
				start: start,
				end:   start + rapid.Int32Range(1, 12).Draw(t, "life"),
			}
			first, tightest := naive(placed, it)
			if got := s.first(it); got != first {
				t.Fatalf("first-fit at %d, want %d", got, first)
			}
			if got := s.tightest(it); got != tightest {
				t.Fatalf("best-fit at %d, want %d", got, tightest)
			}
			s.insert(it, tightest)
			placed = append(placed, row{lo: tightest, hi: tightest + it.size, start: it.start, end: it.end})
		}
		folded += s.used
	})
	if folded == 0 {
		t.Error("no run was long enough to be folded: the test does not test it")
	}
}
