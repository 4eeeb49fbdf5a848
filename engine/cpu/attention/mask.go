package attention

import "slices"

// tile is a range of queries of one head.
type tile struct {
	b, h   int
	i0, n  int // first query, number of queries
	length int // keys of the batch row
}

func (p *Plan) tile(args *Args, b, h, i0, n int) tile {
	t := tile{b: b, h: h, i0: i0, n: n, length: p.Tk}
	if args.KeyLengths != nil {
		t.length = min(p.Tk, max(0, int(args.KeyLengths[b])))
	}
	return t
}

// visible returns how many keys, from 0 on, query i of the tile may see before
// segments are looked at. It does not decrease with i.
func (p *Plan) visible(t *tile, i int) int {
	if !p.Causal {
		return t.length
	}
	return min(t.length, t.i0+i+max(t.length-p.Tq, 0)+1)
}

// limits fills valid with the number of keys each query sees of the block of
// keys from j0 on, and returns the largest: 0 if the whole tile is masked.
func (p *Plan) limits(args *Args, t *tile, j0, keys int, valid []int32) int {
	for i := range t.n {
		valid[i] = int32(max(0, min(keys, p.visible(t, i)-j0)))
	}
	n := int(valid[t.n-1])
	if n == 0 || args.SegmentsQ == nil {
		return n
	}
	// A segment of keys beyond all of the queries' segments is masked as a whole, which
	// skips the other documents of a packed row.
	q := args.SegmentsQ[t.b*p.Tq+t.i0:][:t.n]
	lo, hi := slices.Min(q), slices.Max(q)
	for _, s := range args.SegmentsK[t.b*p.Tk+j0:][:n] {
		if lo <= s && s <= hi {
			return n
		}
	}
	return 0
}

// mask sets the scores of keys of other segments to -Inf.
func (p *Plan) mask(args *Args, t *tile, j0 int, valid []int32, scores []float32) {
	if args.SegmentsQ == nil {
		return
	}
	segments := args.SegmentsK[t.b*p.Tk+j0:]
	for i := range t.n {
		if n := int(valid[i]); n > 0 {
			p.rows.mask(n, &scores[i*p.pitch], &segments[0], args.SegmentsQ[t.b*p.Tq+t.i0+i])
		}
	}
}

// drop multiplies each row of x by its dropout multipliers. Those of short rows are drawn several rows at a time: a row
// of a few takes nearly as long as many.
func (p *Plan) drop(args *Args, t *tile, j0 int, valid []int32, x, keep []float32) {
	step := 1
	if p.Tk <= p.block { // rows follow one another without gaps
		step = max(1, len(keep)/p.Tk)
	}
	for i := 0; i < t.n; i += step {
		rows := valid[i:min(i+step, t.n)]
		last := len(rows) - 1
		for last > 0 && rows[last] == 0 {
			last--
		}
		if rows[last] == 0 {
			continue
		}
		row := (t.b*p.Heads+t.h)*p.Tq + t.i0 + i
		args.Dropout.Keep(uint64(row)*uint64(p.Tk)+uint64(j0), keep[:last*p.Tk+int(rows[last])])
		for r, n := range rows[:last+1] {
			if n > 0 {
				p.rows.mul(int(n), &x[(i+r)*p.pitch], &keep[r*p.Tk])
			}
		}
	}
}

// firstRow returns the first query that sees key j of the block, rounded down
// to a multiple of step: earlier rows of that key's column are masked.
func firstRow(valid []int32, j, step int) int {
	i, _ := slices.BinarySearch(valid, int32(j+1))
	return i / step * step
}
