package pack

import (
	"cmp"
	"slices"
)

// shelf holds the placed buffers, sorted by offset, in one flat slice. A scan goes over
// it in order with a loop that has no branch depending on single intervals, which beats
// trees at the sizes that occur. The scan is short because a training step puts many
// buffers at the same offset at different times (every layer needs the same temporaries).
// A long run of equal offsets is folded into one row that is searched by time.
type shelf struct {
	rows  []row
	parts [][]part // of the folded rows; slices are kept for the next placement
	used  int      // parts in use
}

// row is one buffer, or a run of buffers with the same offset. The arena [lo, hi) and
// the time [start, end) enclose all of it.
type row struct {
	lo, hi     int64
	start, end int32
	parts      int32 // index in shelf.parts; none for a single buffer
}

const none = -1

// longRun is the number of buffers at one offset that are folded: a shorter run is
// scanned faster than searched.
const longRun = 8

// part is one buffer of a folded row: it takes [lo, hi) of the arena during [start,
// end). Parts are sorted by time: buffers at the same offset are never live together.
type part struct {
	hi         int64
	start, end int32
}

func (s *shelf) clear() { s.rows, s.used = s.rows[:0], 0 }

// first returns the lowest offset at which it fits.
func (s *shelf) first(it *item) int64 {
	var top int64 // everything below is taken or too small
	rows := s.rows
	for i := range rows {
		r := &rows[i]
		if r.parts == none {
			meet := meet(r.start, r.end, it)
			if (r.lo-top-it.size)|^meet >= 0 {
				return top
			}
			top = max(top, r.hi&meet)
		} else if hi := s.highest(r, it, top); hi > 0 {
			if r.lo-top >= it.size {
				return top
			}
			top = max(top, hi)
		}
	}
	return top
}

// tightest returns the lowest offset of the smallest gap in which it fits; above
// everything if none does.
func (s *shelf) tightest(it *item) int64 {
	var top int64
	best, bestGap := int64(-1), int64(-1)
	rows := s.rows
	for i := range rows {
		r := &rows[i]
		gap := r.lo - top
		if r.parts == none {
			meet := meet(r.start, r.end, it)
			if (gap-it.size)|^meet >= 0 && (best < 0 || gap < bestGap) {
				best, bestGap = top, gap
			}
			top = max(top, r.hi&meet)
		} else if hi := s.highest(r, it, top); hi > 0 {
			if gap >= it.size && (best < 0 || gap < bestGap) {
				best, bestGap = top, gap
			}
			top = max(top, hi)
		}
	}
	if best >= 0 {
		return best
	}
	return top
}

// meet is all ones if [start, end) meets the item's time, else zero: both differences
// are negative exactly if it does.
func meet(start, end int32, it *item) int64 {
	return int64((start-it.end)&(it.start-end)) >> 31
}

// highest returns the top of the row's buffers that are live together with the item; 0 if there are
// none, or if all of the row is below top and so cannot matter.
func (s *shelf) highest(r *row, it *item, top int64) (hi int64) {
	if r.hi <= top || r.start >= it.end || r.end <= it.start {
		return 0
	}
	parts := s.parts[r.parts]
	low, high := 0, len(parts) // the first part that ends after the item starts
	for low < high {
		if mid := (low + high) / 2; parts[mid].end <= it.start {
			low = mid + 1
		} else {
			high = mid
		}
	}
	for ; low < len(parts) && parts[low].start < it.end; low++ {
		hi = max(hi, parts[low].hi)
	}
	return hi
}

// insert puts an item at offset lo, where it must fit.
func (s *shelf) insert(it *item, lo int64) {
	hi := lo + it.size
	at, _ := slices.BinarySearchFunc(s.rows, lo, func(r row, lo int64) int { return cmp.Compare(r.lo, lo) })
	run := at
	for run < len(s.rows) && s.rows[run].lo == lo && s.rows[run].parts == none {
		run++
	}
	if run < len(s.rows) && s.rows[run].lo == lo { // folded already
		s.rows[run].add(s, part{hi, it.start, it.end})
		return
	}
	if run-at+1 < longRun {
		s.rows = slices.Insert(s.rows, run, row{lo, hi, it.start, it.end, none})
		return
	}
	if s.used == len(s.parts) {
		s.parts = append(s.parts, nil)
	}
	folded := row{lo, hi, it.start, it.end, int32(s.used)}
	s.parts[s.used] = s.parts[s.used][:0]
	s.used++
	folded.add(s, part{hi, it.start, it.end})
	for _, r := range s.rows[at:run] {
		folded.add(s, part{r.hi, r.start, r.end})
	}
	s.rows[at] = folded
	s.rows = slices.Delete(s.rows, at+1, run)
}

// add puts a buffer into a folded row.
func (r *row) add(s *shelf, p part) {
	parts := s.parts[r.parts]
	i, _ := slices.BinarySearchFunc(parts, p.start, func(x part, start int32) int { return cmp.Compare(x.start, start) })
	s.parts[r.parts] = slices.Insert(parts, i, p)
	r.hi, r.start, r.end = max(r.hi, p.hi), min(r.start, p.start), max(r.end, p.end)
}
