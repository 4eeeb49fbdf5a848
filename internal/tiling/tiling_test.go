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
		}
	}
}

// Tiles are large where they are many, or as many as half of the multiprocessors that small
// ones would need twice.
func TestTile(t *testing.T) {
	const sms = 40 // of a T4
	for _, c := range []struct {
		p    Product
		side int
	}{
		{Product{1, 4096, 4096, 4096}, 128},
		{Product{1, 1024, 512, 512}, 128}, // 32 tiles, or four rounds of 128 small ones
		{Product{1, 1024, 256, 512}, 64},  // 16 tiles, or two rounds
		{Product{1, 64, 8192, 512}, 64},
		{Product{8, 128, 128, 64}, 64},
		{Product{1, 768, 768, 8192}, 128}, // in parts
	} {
		if side := c.p.Tile(sms); side != c.side {
			t.Errorf("%v: tiles of %d, want %d", c.p, side, c.side)
		}
	}
}
