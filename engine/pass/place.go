package pass

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pack"
)

// Placement is where each temporary value of a function is in the arena.
type Placement struct {
	// Offset is the byte offset of each value by ID, -1 for values that have
	// no storage of their own here (inputs, states and outputs).
	Offset []int64
	// Bytes is the extent of the arena, Bound the most that is live at one
	// position: no placement can be smaller.
	Bytes, Bound int64
	// Peak is the position in f.Nodes at which Bound is reached, and AtPeak the
	// values (what each buffer holds then) that are live there, largest first.
	// Their sizes, each rounded up to the alignment, add up to Bound.
	Peak   int
	AtPeak []*graph.Value
}

// packingGap is how far above the lower bound an arena's size may be before a better
// packing is searched for, a search that is limited to some milliseconds for a training
// step.
const packingGap = 0.005

// place packs the lifetimes into one arena.
func place(u *Unit) error {
	var t tables
	bufs := t.buffers(u.F)
	items := itemsOf(bufs)
	r, err := packed(items, pack.Options{Align: u.Align})
	if err != nil {
		return err
	}
	p := &Placement{Offset: make([]int64, u.F.NumValues()), Bytes: r.Size, Bound: r.LowerBound}
	for i := range p.Offset {
		p.Offset[i] = -1
	}
	for i, b := range bufs {
		for _, v := range b.values {
			p.Offset[v.ID] = items[i].Offset + t.inside[v.ID]
		}
	}
	_, p.Peak = livePeak(u.F, bufs, u.Align)
	position := positionsOf(u.F)
	for _, b := range bufs {
		if int(b.start) <= p.Peak && p.Peak < int(b.end) {
			p.AtPeak = append(p.AtPeak, b.holds(p.Peak, position))
		}
	}
	sortBySize(p.AtPeak)
	u.Placement = p
	return nil
}

// itemsOf returns buffers as they are packed.
func itemsOf(bufs []*buffer) []pack.Buffer {
	items := make([]pack.Buffer, len(bufs))
	for i, b := range bufs {
		items[i] = pack.Buffer{Size: b.bytes, Start: b.start, End: b.end}
	}
	return items
}

// packed packs items with as much effort as pays off.
func packed(items []pack.Buffer, o pack.Options) (pack.Result, error) {
	o.Tolerance, o.Search = packingGap, min(200, 20_000/max(1, len(items)))
	r, err := pack.Pack(items, o)
	if err != nil {
		err = fmt.Errorf("packing %d buffers: %w", len(items), err)
	}
	return r, err
}

// extent returns bounds of the bytes that place would give f, which tell whether they are within a budget.
func extent(f *graph.Func, align, budget int64) (least, most int64, err error) {
	bufs := buffers(f)
	if least, _ = livePeak(f, bufs, align); least > budget {
		return least, math.MaxInt64, nil
	}
	r, err := packed(itemsOf(bufs), pack.Options{Align: align, Enough: budget})
	if r.Size > budget {
		least = r.Size // packing went on as it does without a budget
	}
	return least, r.Size, err
}

// livePeak returns the most bytes of buffers, rounded up to the alignment, that are live at one position, and the
// first such position.
func livePeak(f *graph.Func, bufs []*buffer, align int64) (most int64, at int) {
	change := make([]int64, len(f.Nodes)+1)
	granule := cmp.Or(align, pack.DefaultAlign)
	for _, b := range bufs {
		size := (b.bytes + granule - 1) / granule * granule
		change[b.start] += size
		change[b.end] -= size
	}
	var live int64
	for i, c := range change {
		live += c
		if live > most {
			most, at = live, i
		}
	}
	return most, at
}

// holds returns the value that the buffer holds at a position: the last one made by then,
// not counting views and parts.
func (b *buffer) holds(at int, position positions) *graph.Value {
	held := b.values[0]
	for _, v := range b.values[1:] {
		if position.of(v.Node) <= at && !graph.IsView(v.Node.Op) && v.Type.Bytes() == b.bytes {
			held = v
		}
	}
	return held
}

func sortBySize(vs []*graph.Value) {
	slices.SortStableFunc(vs, func(a, b *graph.Value) int {
		return cmp.Compare(b.Type.Bytes(), a.Type.Bytes())
	})
}
