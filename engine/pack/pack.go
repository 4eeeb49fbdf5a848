// Package pack assigns offsets in one arena to buffers whose live intervals are all known beforehand
// ("dynamic storage allocation", offline).
//
// It promises: no two buffers that are live at the same time overlap, every offset is a multiple
// of the alignment, the result depends only on the input (no clock, no map order, no random
// seed), and the max-live lower bound is reported next to the size reached, so that a caller sees
// the gap. On the traces of transformer training steps the gap is below 0.5 %
// (TestTransformerGap); in general the problem is NP-hard.
//
// The method: place the buffers greedily in several orders, each by first-fit and by
// best-fit, stop as soon as the goal is met (by default the bound), keep the best; if
// the caller asks for it, improve the order by a bounded local search. Sources:
// Pisarchyk & Lee 2020 (arXiv 2001.03288) for the greedy orders, Joslin & Clements 1999
// ("squeaky wheel" optimization) for the search.
package pack

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
)

// Buffer is one block of memory. It is live in the half-open interval [Start, End) of
// schedule positions.
type Buffer struct {
	Size       int64 // bytes; 0 takes no room and gets offset 0
	Start, End int32
	Offset     int64 // bytes from the start of the arena; set by Pack
}

// Options steers Pack. The zero value packs at alignment 64 without the local search.
type Options struct {
	// Align is the alignment of every offset and the granule of every size, in bytes; 0 means 64
	// (a cache line; a GPU arena wants 512).
	Align int64
	// Tolerance is the accepted gap, (Size-LowerBound)/LowerBound: a packing within it ends the work.
	Tolerance float64
	// Enough is a size, in bytes, that ends the work even if the gap is larger (any
	// packing that fits the memory is as good as a tight one). 0 means none.
	Enough int64
	// Search bounds the local search: the number of orders it may try. 0 means no search.
	Search int
}

// Result says how large the arena must be and how good that is.
type Result struct {
	Size       int64  // bytes of arena needed
	LowerBound int64  // bytes: the most that is live at one position; no packing can be smaller
	Method     string // the order and fit that won, for instance "size/first-fit"
	Tried      int    // greedy placements made, including those of the search
}

// DefaultAlign is the alignment used when Options.Align is 0.
const DefaultAlign = 64

// order is one greedy order: the buffers are placed from the smallest to the largest under compare.
type order struct {
	name    string
	compare func(a, b *item) int
}

// orders in the sequence in which they are tried: those that win most often come first.
var orders = [...]order{
	{"size", func(a, b *item) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(b.life(), a.life()))
	}},
	{"lifetime", func(a, b *item) int {
		return cmp.Or(cmp.Compare(b.life(), a.life()), cmp.Compare(b.size, a.size))
	}},
	{"area", func(a, b *item) int { return cmp.Compare(b.area(), a.area()) }},
	{"start", func(a, b *item) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.size, a.size))
	}},
}

// item is a buffer inside the packer: its size is rounded up to the alignment.
type item struct {
	size       int64
	start, end int32
	index      int32 // position in the caller's slice, the last tie-break
}

func (it *item) life() int32   { return it.end - it.start }
func (it *item) area() float64 { return float64(it.life()) * float64(it.size) }

// Pack sets the Offset of every buffer and reports the arena size. It fails on a
// negative size or position, on a buffer that is never live, on an alignment that is
// not a power of two, and when the sizes overflow int64. On failure the buffers are
// left as they were.
func Pack(bufs []Buffer, opts Options) (Result, error) {
	align := cmp.Or(opts.Align, DefaultAlign)
	items, err := newItems(bufs, align)
	if err != nil {
		return Result{}, err
	}
	p := newPacker(items)
	if len(items) > 0 {
		goal := p.goal(opts)
		p.greedy(goal)
		p.search(goal, opts.Search)
	}
	for i := range bufs {
		bufs[i].Offset = 0
	}
	for i, it := range items {
		bufs[it.index].Offset = p.offsets[i]
	}
	return Result{Size: p.best, LowerBound: p.bound, Method: p.method, Tried: p.tried}, nil
}

// newItems checks the buffers and rounds the sizes; buffers of size 0 are left out.
func newItems(bufs []Buffer, align int64) ([]item, error) {
	if align <= 0 || align&(align-1) != 0 {
		return nil, fmt.Errorf("pack: alignment %d is not a positive power of two", align)
	}
	if len(bufs) > math.MaxInt32 {
		return nil, fmt.Errorf("pack: %d buffers, at most %d are possible", len(bufs), math.MaxInt32)
	}
	items := make([]item, 0, len(bufs))
	room := int64(math.MaxInt64)
	for i := range bufs {
		b := &bufs[i]
		switch {
		case b.Size < 0:
			return nil, fmt.Errorf("pack: buffer %d has negative size %d", i, b.Size)
		case b.Start < 0 || b.Start >= b.End:
			return nil, fmt.Errorf("pack: buffer %d is live in [%d,%d): want 0 <= start < end", i, b.Start, b.End)
		case b.Size == 0:
			continue
		case b.Size > math.MaxInt64-align:
			return nil, fmt.Errorf("pack: buffer %d of %d bytes is too large", i, b.Size)
		}
		size := (b.Size + align - 1) &^ (align - 1)
		if room -= size; room < 0 {
			return nil, fmt.Errorf("pack: the sizes up to buffer %d add up to more than %d bytes", i, int64(math.MaxInt64))
		}
		items = append(items, item{size: size, start: b.Start, end: b.End, index: int32(i)})
	}
	return items, nil
}

// packer holds the items, the best placement so far and scratch memory.
type packer struct {
	items   []item
	bound   int64
	best    int64   // size of the best placement
	offsets []int64 // of the best placement, by item
	ranking []int32 // the order that gave it
	method  string
	tried   int

	attempts [2]attempt // that are made at once
}

func newPacker(items []item) *packer {
	p := &packer{
		items:   items,
		bound:   maxLive(items),
		offsets: make([]int64, len(items)),
		ranking: make([]int32, len(items)),
	}
	for k := range p.attempts {
		p.attempts[k] = attempt{offsets: make([]int64, len(items)), ranking: make([]int32, len(items))}
	}
	return p
}

// goal is the largest arena size that needs no improving.
func (p *packer) goal(opts Options) int64 {
	return max(p.bound+int64(float64(p.bound)*max(opts.Tolerance, 0)), opts.Enough)
}

// greedy tries every order with both fits and stops when the goal is met: often at the first. The others are tried
// two at a time.
func (p *packer) greedy(goal int64) {
	p.best = math.MaxInt64
	const tries = len(orders) * len(fits)
	for from, n := 0, 1; from < tries; from, n = from+n, len(p.attempts) {
		var sizes [len(p.attempts)]int64
		var all sync.WaitGroup
		n := min(n, tries-from)
		for k := range n {
			all.Go(func() {
				a := &p.attempts[k]
				a.rank(p.items, orders[(from+k)/len(fits)])
				// A placement that reaches the best size cannot win: place stops there.
				sizes[k], _ = a.place(p.items, a.ranking, fit((from+k)%len(fits)), p.best)
			})
		}
		all.Wait()
		for k, size := range sizes[:n] {
			p.tried++
			if size < p.best {
				p.best = size
				p.method = orders[(from+k)/len(fits)].name + "/" + fits[(from+k)%len(fits)]
				copy(p.offsets, p.attempts[k].offsets)
				copy(p.ranking, p.attempts[k].ranking)
			}
			if p.best <= goal {
				return
			}
		}
	}
}

// maxLive is the most bytes live at one position.
func maxLive(items []item) int64 {
	type event struct {
		at    int32
		delta int64
	}
	events := make([]event, 0, 2*len(items))
	for _, it := range items {
		events = append(events, event{it.start, it.size}, event{it.end, -it.size})
	}
	// Buffers that end at a position make room for those that start there.
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.delta, b.delta))
	})
	var live, most int64
	for _, e := range events {
		live += e.delta
		most = max(most, live)
	}
	return most
}
