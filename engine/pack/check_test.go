package pack

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// check verifies a packing in O(n log n): every offset is aligned and not negative, and no two buffers that
// are live together overlap. The error names two buffers at fault. size is the arena that must hold them all.
func check(bufs []Buffer, align, size int64) error {
	if align <= 0 || align&(align-1) != 0 {
		return fmt.Errorf("pack: alignment %d is not a positive power of two", align)
	}
	byOffset := make([]int32, 0, len(bufs))
	for i := range bufs {
		b := &bufs[i]
		switch {
		case b.Offset < 0 || b.Offset&(align-1) != 0:
			return fmt.Errorf("pack: buffer %d has offset %d: want a multiple of %d", i, b.Offset, align)
		case b.Size > size-b.Offset:
			return fmt.Errorf("pack: buffer %d takes [%d,%d), beyond the arena of %d bytes", i, b.Offset, b.Offset+b.Size, size)
		case b.Size > 0:
			byOffset = append(byOffset, int32(i))
		}
	}
	slices.SortStableFunc(byOffset, func(a, b int32) int { return cmp.Compare(bufs[a].Offset, bufs[b].Offset) })

	// Sweep over time with the set of live buffers, ordered by offset. As long as no overlap was found the live
	// buffers are disjoint, so a new one can only touch its neighbors.
	type event struct {
		at   int32
		ends bool
		rank int32 // in byOffset
	}
	events := make([]event, 0, 2*len(byOffset))
	for rank, i := range byOffset {
		events = append(events, event{bufs[i].Start, false, int32(rank)}, event{bufs[i].End, true, int32(rank)})
	}
	slices.SortFunc(events, func(a, b event) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		if a.ends != b.ends {
			if a.ends {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.rank, b.rank)
	})
	live := newRankSet(len(byOffset))
	for _, e := range events {
		if e.ends {
			live.remove(int(e.rank))
			continue
		}
		i := byOffset[e.rank]
		for _, n := range [...]int{live.before(int(e.rank)), live.after(int(e.rank))} {
			if n < 0 {
				continue
			}
			j := byOffset[n]
			a, b := &bufs[i], &bufs[j]
			if a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size {
				return fmt.Errorf("pack: buffers %d and %d overlap: [%d,%d) live in [%d,%d), [%d,%d) live in [%d,%d)", i, j,
					a.Offset, a.Offset+a.Size, a.Start, a.End, b.Offset, b.Offset+b.Size, b.Start, b.End)
			}
		}
		live.add(int(e.rank))
	}
	return nil
}

// rankSet is a set of small integers with neighbors: a bitmap, and above it bitmaps of the words that are not
// zero, so that each operation touches one word a level (64-ary).
type rankSet [][]uint64

func newRankSet(n int) rankSet {
	var s rankSet
	for {
		n = (n + 63) / 64
		s = append(s, make([]uint64, max(n, 1)))
		if n <= 1 {
			return s
		}
	}
}

func (s rankSet) add(i int) {
	for _, level := range s {
		level[i/64] |= 1 << (i % 64)
		i /= 64
	}
}

func (s rankSet) remove(i int) {
	for _, level := range s {
		level[i/64] &^= 1 << (i % 64)
		if level[i/64] != 0 {
			return
		}
		i /= 64
	}
}

// before returns the largest member below i, or -1.
func (s rankSet) before(i int) int {
	for l, level := range s {
		if w := level[i/64] & (1<<(i%64) - 1); w != 0 {
			i = i/64*64 + bits.Len64(w) - 1
			for l--; l >= 0; l-- {
				i = i*64 + bits.Len64(s[l][i]) - 1
			}
			return i
		}
		i /= 64
	}
	return -1
}

// after returns the smallest member above i, or -1.
func (s rankSet) after(i int) int {
	for l, level := range s {
		if w := level[i/64] &^ (2<<(i%64) - 1); w != 0 {
			i = i/64*64 + bits.TrailingZeros64(w)
			for l--; l >= 0; l-- {
				i = i*64 + bits.TrailingZeros64(s[l][i])
			}
			return i
		}
		i /= 64
	}
	return -1
}
