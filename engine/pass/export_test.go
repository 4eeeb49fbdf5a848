package pass

import (
	"cmp"
	"fmt"

	"github.com/snug-ml/snug/engine/pack"
)

// CheckPlacement holds the result of placing u against its lifetimes: no two
// buffers that are alive together overlap, and nothing can be smaller than the
// bound.
func CheckPlacement(u *Unit) error {
	p := u.Placement
	bufs := buffers(u.F, true)
	items := make([]pack.Buffer, len(bufs))
	for i, b := range bufs {
		items[i] = pack.Buffer{Size: b.bytes, Start: b.start, End: b.end, Offset: p.Offset[b.values[0].ID]}
		for _, v := range b.values {
			if p.Offset[v.ID] != items[i].Offset {
				return fmt.Errorf("%s and %s share a buffer, but lie at %d and %d", b.values[0].Label(), v.Label(), items[i].Offset, p.Offset[v.ID])
			}
		}
	}
	if err := pack.Check(items, cmp.Or(u.Align, pack.DefaultAlign), p.Bytes); err != nil {
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
	return nil
}
