package pack

// fit is the rule by which a buffer takes one of the free gaps.
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

// place puts the items on the shelf in the order of ranking and writes p.trial. It returns the arena size, or
// limit and the item at fault as soon as an item would reach limit or more.
func (p *packer) place(ranking []int32, f fit, limit int64) (size int64, at int32) {
	p.shelf.clear()
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
		p.shelf.insert(it, lo)
	}
	return size, at
}
