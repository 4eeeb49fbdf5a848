package pack

import "slices"

// fit is the rule by which a buffer takes one of the free gaps.
type fit int

const (
	firstFit fit = iota // the lowest gap that is large enough
	bestFit             // the smallest gap that is large enough, the lowest of equals
)

var fits = [...]string{firstFit: "first-fit", bestFit: "best-fit"}

// attempt is a placement: a shelf, the offsets of the items on it, and the order of a greedy one.
type attempt struct {
	shelf   shelf
	offsets []int64
	ranking []int32
}

// rank sorts the items for a greedy placement.
func (a *attempt) rank(items []item, o order) {
	for i := range a.ranking {
		a.ranking[i] = int32(i)
	}
	slices.SortStableFunc(a.ranking, func(x, y int32) int { return o.compare(&items[x], &items[y]) })
}

// place puts the items on the shelf in the order of ranking. It returns the arena size, or limit and the item at
// fault as soon as an item would reach limit or more.
func (a *attempt) place(items []item, ranking []int32, f fit, limit int64) (size int64, at int32) {
	a.shelf.clear()
	for _, i := range ranking {
		it := &items[i]
		var lo int64
		if f == firstFit {
			lo = a.shelf.first(it)
		} else {
			lo = a.shelf.tightest(it)
		}
		hi := lo + it.size
		if hi >= limit {
			return limit, i
		}
		a.offsets[i] = lo
		if hi > size {
			size, at = hi, i
		}
		a.shelf.insert(it, lo)
	}
	return size, at
}
