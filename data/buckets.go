package data

import (
	"maps"
	"math"
	"slices"
)

// Lengths counts sequences by their length.
type Lengths map[int]int64

// Count is the number of sequences.
func (l Lengths) Count() (n int64) {
	for _, c := range l {
		n += c
	}
	return n
}

// Sum is the number of tokens in all sequences.
func (l Lengths) Sum() (n int64) {
	for length, c := range l {
		n += int64(length) * c
	}
	return n
}

// Quantile is the smallest length that a share q of the sequences does not exceed;
// 0 when there are none.
func (l Lengths) Quantile(q float64) int {
	rank := max(1, int64(math.Ceil(q*float64(l.Count()))))
	var seen int64
	for _, length := range slices.Sorted(maps.Keys(l)) {
		if seen += l[length]; seen >= rank {
			return length
		}
	}
	return 0
}

// maxBucketSteps bounds the grid of candidate lengths, whose square the search
// costs.
const maxBucketSteps = 512

// Buckets chooses at most k static lengths that pad the sequences least, by dynamic
// programming over the multiples of `multiple` (coarser if the longest would need more
// than 512 of them). The last bucket fits the longest sequence; those above limit count
// as limit, 0 means no limit.
func (l Lengths) Buckets(k, multiple, limit int) []int {
	longest := 0
	for length := range l {
		longest = max(longest, length)
	}
	if limit > 0 {
		longest = min(longest, limit)
	}
	if longest == 0 || k < 1 {
		return nil
	}
	step := max(1, multiple)
	step *= (longest + step*maxBucketSteps - 1) / (step * maxBucketSteps)
	steps := (longest + step - 1) / step
	// upto[j] counts the sequences of length at most j*step.
	upto := make([]int64, steps+1)
	for length, c := range l {
		upto[min((length+step-1)/step, steps)] += c
	}
	for j := 1; j <= steps; j++ {
		upto[j] += upto[j-1]
	}
	// cost[b][j]: least padded size of all sequences up to j*step in b buckets.
	cost := make([][]int64, k+1)
	from := make([][]int, k+1)
	for b := range cost {
		cost[b], from[b] = make([]int64, steps+1), make([]int, steps+1)
		for j := 1; j <= steps; j++ {
			cost[b][j] = math.MaxInt64
			for i := range j {
				if b == 0 || cost[b-1][i] == math.MaxInt64 {
					continue
				}
				if c := cost[b-1][i] + (upto[j]-upto[i])*int64(j*step); c < cost[b][j] {
					cost[b][j], from[b][j] = c, i
				}
			}
		}
	}
	best := 1
	for b := 2; b <= k; b++ {
		if cost[b][steps] < cost[best][steps] {
			best = b
		}
	}
	var lengths []int
	for b, j := best, steps; b > 0; b, j = b-1, from[b][j] {
		if j > 0 && upto[j] > upto[from[b][j]] {
			lengths = append(lengths, j*step)
		}
	}
	slices.Reverse(lengths)
	return lengths
}

// PaddingShare is the share of padding when every sequence is padded to the
// smallest of the ascending lengths that fits it, and those longer than the last
// are cut to it.
func (l Lengths) PaddingShare(lengths []int) float64 {
	var real, padded int64
	for length, c := range l {
		i, _ := slices.BinarySearch(lengths, length)
		size := lengths[min(i, len(lengths)-1)]
		real += int64(min(length, size)) * c
		padded += int64(size) * c
	}
	if padded == 0 {
		return 0
	}
	return 1 - float64(real)/float64(padded)
}
