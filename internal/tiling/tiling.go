// Package tiling divides matmuls into tiles for a card: engine/cuda launches the
// result, and engine/plan prices it.
package tiling

// Product is op(A) op(B) [M, N] with K inside, Batch times.
type Product struct{ Batch, M, N, K int }

// Tile is the side of a block's square part of the result on a card of some
// multiprocessors: 128 where that keeps all of them busy, else 64.
func (p Product) Tile(sms int) int {
	if p.M > 64 && p.N > 64 && p.Tiles(128) >= sms {
		return 128
	}
	return 64
}

// Tiles are how many parts of a side the results have.
func (p Product) Tiles(side int) int { return p.Batch * ceil(p.M, side) * ceil(p.N, side) }

// least is how much of K a part has, so that it is worth the memory traffic.
const least = 512

// Split cuts a long K into parts of a size where there are too few tiles for the
// card; the sums of the parts are added after.
func (p Product) Split(sms, side int) (parts, size int) {
	parts = min(2*sms/p.Tiles(side), p.K/least)
	if p.Batch > 1 || parts < 2 {
		return 1, p.K
	}
	size = ceil(ceil(p.K, parts), 32) * 32
	return ceil(p.K, size), size
}

func ceil(a, b int) int { return (a + b - 1) / b }
