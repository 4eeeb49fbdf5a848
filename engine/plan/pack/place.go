package pack

import "slices"

// fit says which of the free gaps a buffer takes.
type fit int

const (
	firstFit fit = iota // the lowest gap that is large enough
	bestFit             // the smallest gap that is large enough, the lowest of equals
)

func (f fit) String() string {
	if f == bestFit {
		return "best-fit"
	}
	return "first-fit"
}

// placed is a buffer that has its offset: it takes [lo, hi) of the arena during [start, end).
type placed struct {
	lo, hi     int64
	start, end int32
}

// shelf holds what is placed, sorted by lo. It is kept in one flat slice: a scan touches memory in order and
// has no branch that depends on the intervals, which beats trees at the sizes that occur (10,000 buffers).
type shelf []placed

// place puts the items on the shelf in the order of ranking and writes p.trial. It returns the arena size, or
// limit and the item at fault as soon as an item would reach limit or more.
func (p *packer) place(ranking []int32, f fit, limit int64) (size int64, at int32) {
	p.shelf = p.shelf[:0]
	for _, i := range ranking {
		it := &p.items[i]
		var lo int64
		if f == firstFit {
			lo = p.shelf.first(it)
		} else {
			lo = p.shelf.tightest(it)
		}
		hi := lo + it.size
		if hi >= limit {
			return limit, i
		}
		p.trial[i] = lo
		if hi > size {
			size, at = hi, i
		}
		p.shelf.insert(placed{lo, hi, it.start, it.end})
	}
	return size, at
}

// first returns the lowest offset at which it fits.
func (s shelf) first(it *item) int64 {
	var top int64 // everything below is taken or too small
	for i := range s {
		b := &s[i]
		// Both differences are negative exactly if the intervals meet: meet is then all ones, else zero.
		meet := int64((b.start-it.end)&(it.start-b.end)) >> 31
		if (b.lo-top-it.size)|^meet >= 0 {
			return top
		}
		top = max(top, b.hi&meet)
	}
	return top
}

// tightest returns the lowest offset of the smallest gap in which it fits; above everything if none does.
func (s shelf) tightest(it *item) int64 {
	var top int64
	best, bestGap := int64(-1), int64(-1)
	for i := range s {
		b := &s[i]
		meet := int64((b.start-it.end)&(it.start-b.end)) >> 31
		gap := b.lo - top
		if (gap-it.size)|^meet >= 0 && (best < 0 || gap < bestGap) {
			best, bestGap = top, gap
		}
		top = max(top, b.hi&meet)
	}
	if best >= 0 {
		return best
	}
	return top
}

func (s *shelf) insert(b placed) {
	at, _ := slices.BinarySearchFunc(*s, b.lo, func(x placed, lo int64) int {
		if x.lo < lo {
			return -1
		}
		return 1 // equal ones go behind: they are not live together
	})
	*s = slices.Insert(*s, at, b)
}
