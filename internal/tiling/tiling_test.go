package tiling

import "testing"

// The parts of K cover it without an empty one, whatever the shape.
func TestSplitCovers(t *testing.T) {
	for _, p := range []Product{{1, 64, 64, 511}, {1, 64, 64, 1024}, {1, 256, 1024, 2048}, {1, 1, 1, 1 << 20}, {3, 64, 64, 1 << 16}, {1, 4096, 4096, 4096}, {1, 65, 65, 100_003}} {
		for _, sms := range []int{1, 40, 132} {
			side := p.Tile(sms)
			parts, size := p.Split(sms, side)
			if parts < 1 || (parts-1)*size >= p.K || parts*size < p.K {
				t.Errorf("%v on %d: %d parts of %d", p, sms, parts, size)
			}
			if p.Batch > 1 && parts > 1 {
				t.Errorf("%v on %d: a batch in %d parts", p, sms, parts)
			}
			if side == 128 && p.Tiles(side) < sms {
				t.Errorf("%v on %d: %d tiles of 128 leave multiprocessors idle", p, sms, p.Tiles(side))
			}
		}
	}
}
