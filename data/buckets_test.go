package data

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestLengths(t *testing.T) {
	l := Lengths{1: 2, 5: 1, 10: 1}
	if l.Count() != 4 || l.Sum() != 17 {
		t.Errorf("count %d, sum %d", l.Count(), l.Sum())
	}
	for q, want := range map[float64]int{0: 1, 0.5: 1, 0.51: 5, 0.75: 5, 0.76: 10, 1: 10} {
		if got := l.Quantile(q); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
	if q := (Lengths{}).Quantile(0.5); q != 0 {
		t.Errorf("quantile of nothing is %d", q)
	}
	near(t, "fixed padding", l.PaddingShare([]int{10}), 1-17.0/40, 1e-12)
	near(t, "bucket padding", l.PaddingShare([]int{1, 5, 10}), 0, 1e-12)
	near(t, "cut", l.PaddingShare([]int{2}), 1-6.0/8, 1e-12)
	if l.Buckets(0, 1, 0) != nil || (Lengths{}).Buckets(3, 8, 0) != nil {
		t.Error("buckets out of nothing")
	}
}

// The dynamic program finds the same as trying every choice.
func TestBucketsAreOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Lengths(rapid.MapOfN(rapid.IntRange(1, 40), rapid.Int64Range(1, 9), 1, 8).Draw(t, "lengths"))
		k := rapid.IntRange(1, 3).Draw(t, "k")
		multiple := rapid.IntRange(1, 8).Draw(t, "multiple")
		limit := rapid.SampledFrom([]int{0, 17, 64}).Draw(t, "limit")
		got := l.Buckets(k, multiple, limit)
		longest := l.Quantile(1)
		if limit > 0 {
			longest = min(longest, limit)
		}
		if len(got) == 0 || len(got) > k || !slices.IsSorted(got) {
			t.Fatalf("buckets %v for k=%d", got, k)
		}
		last := (longest + multiple - 1) / multiple * multiple
		if got[len(got)-1] != last {
			t.Fatalf("buckets %v, the longest is %d", got, longest)
		}
		best := math.Inf(1)
		var try func(lengths []int, from int)
		try = func(lengths []int, from int) {
			if len(lengths) < k-1 {
				for next := from; next < last; next += multiple {
					try(append(lengths, next), next+multiple)
				}
			}
			best = min(best, l.PaddingShare(append(slices.Clone(lengths), last)))
		}
		try(nil, multiple)
		if share := l.PaddingShare(got); share > best+1e-12 {
			t.Fatalf("buckets %v pad %v, the best choice pads %v", got, share, best)
		}
	})
}

// Long documents make the grid coarser, not the search slower.
func TestBucketsCoarse(t *testing.T) {
	l := Lengths{}
	for i := range 2000 {
		l[1+i*i/2]++
	}
	got := l.Buckets(8, 8, 0)
	if len(got) != 8 || got[7] < l.Quantile(1) || got[0]%8 != 0 {
		t.Errorf("buckets %v", got)
	}
	if share := l.PaddingShare(got); share > 0.2 {
		t.Errorf("eight buckets leave %.2f padding", share)
	}
}
