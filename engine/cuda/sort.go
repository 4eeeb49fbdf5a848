package cuda

import (
	"math/bits"

	"github.com/snug-ml/snug/internal/counts"
)

// tileOfKeys is how many keys a block of kernels/sort.cu has, and digitsOfKeys how many values the 8 bits
// that it sorts by.
const tileOfKeys, digitsOfKeys = 2048, 256

// sorted sorts n keys, of which those above most count as it, and returns them and the positions where they
// were; those with the same key are in order.
func (l *lowering) sorted(keys address, n, most int) (sorted, from address) {
	size := 4 * int64(n)
	var in, at [2]address // one for what is read and one for what is written
	for i := range in {
		in[i], at[i] = l.take(size), l.take(size)
	}
	blocks := ceil(n, tileOfKeys)
	found := l.take(4 * digitsOfKeys * int64(blocks))
	for shift := 0; shift < bits.Len(uint(most)); shift += 8 {
		to := shift / 8 % 2
		l.run("sort_count", blocks, 256, new(params).ptr(keys).ptr(found).u32(n, shift, most)).
			does("block", blocks).does("line", warps(n)).moves(size)
		l.run("sort_scan", 1, 1024, new(params).ptr(found).u32(digitsOfKeys*blocks)).
			does("look", ceil(digitsOfKeys*blocks, 4096)).adds(counts.Sector, digitsOfKeys*blocks/4)
		p := new(params).ptr(keys)
		if shift == 0 {
			p.null()
		} else {
			p.ptr(at[1-to])
		}
		l.run("sort_place", blocks, 256, p.ptr(found).ptr(in[to]).ptr(at[to]).u32(n, shift, most)).
			does("block", blocks).does("look", ceil(n, 256)).does("line", warps(n)).moves(4 * size)
		keys, sorted, from = in[to], in[to], at[to]
	}
	return sorted, from
}
