package pass

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/pack"
)

// SliceAll cuts the blocks of u, whose values may have been recomputed, whether that saves
// memory or not.
func SliceAll(u *Unit, parts int) error {
	f, err := sliced(u.F, u.Blocks, parts, func(_, _ int64) bool { return true })
	if err == nil {
		u.F = f
	}
	return err
}

// CheckPlacement checks the result of placing u against its lifetimes: no two buffers
// that are live together overlap, and nothing can be smaller than the bound.
func CheckPlacement(u *Unit) error {
	p := u.Placement
	var t tables
	bufs := t.buffers(u.F)
	items := make([]pack.Buffer, len(bufs))
	for i, b := range bufs {
		items[i] = pack.Buffer{Size: b.bytes, Start: b.start, End: b.end, Offset: p.Offset[b.values[0].ID]}
		for _, v := range b.values {
			if p.Offset[v.ID] != items[i].Offset+t.inside[v.ID] {
				return fmt.Errorf("%s and %s share a buffer, but lie at %d and %d", b.values[0].Label(), v.Label(), items[i].Offset, p.Offset[v.ID])
			}
		}
	}
	if err := disjoint(items, cmp.Or(u.Align, pack.DefaultAlign), p.Bytes); err != nil {
		return err
	}
	if live := peak(u.F); p.Bytes < live || p.Bytes < p.Bound || p.Bound < live {
		return fmt.Errorf("placed in %d bytes, bound %d, of which %d are live", p.Bytes, p.Bound, live)
	}
	sum := int64(0)
	for _, v := range p.AtPeak {
		sum += (v.Type.Bytes() + u.Align - 1) / u.Align * u.Align
	}
	if sum != p.Bound {
		return fmt.Errorf("what is live at the peak takes %d bytes, the bound is %d", sum, p.Bound)
	}
	// Bounds for a budget tell what the placement tells.
	for _, budget := range []int64{0, p.Bound - 1, p.Bound, (p.Bound + p.Bytes) / 2, p.Bytes - 1, p.Bytes, 2 * p.Bytes} {
		least, most, err := extent(u.F, u.Align, budget)
		if err != nil {
			return err
		}
		if t := (trial{least: least, most: most}); !t.decides(budget) || t.most <= budget != (p.Bytes <= budget) || least > p.Bytes || most < p.Bytes {
			return fmt.Errorf("placed in %d bytes, which are from %d to %d for a budget of %d", p.Bytes, least, most, budget)
		}
	}
	return nil
}

// disjoint reports an error unless all buffers are aligned and within size
// bytes, and no two of them that are live together overlap.
func disjoint(bufs []pack.Buffer, align, size int64) error {
	bufs = slices.DeleteFunc(slices.Clone(bufs), func(b pack.Buffer) bool { return b.Size == 0 })
	slices.SortFunc(bufs, func(a, b pack.Buffer) int { return cmp.Compare(a.Start, b.Start) })
	for i, a := range bufs {
		if a.Offset < 0 || a.Offset%align != 0 || a.Offset+a.Size > size {
			return fmt.Errorf("%+v is not aligned to %d within %d bytes", a, align, size)
		}
		for _, b := range bufs[i+1:] {
			if b.Start >= a.End {
				break
			}
			if a.Offset < b.Offset+b.Size && b.Offset < a.Offset+a.Size {
				return fmt.Errorf("%+v and %+v overlap", a, b)
			}
		}
	}
	return nil
}
