// Package tiling divides matmuls into tiles for a card: engine/cuda launches the
// result, and engine/plan prices it.
package tiling

// Product is op(A) op(B) [M, N] with K inside, Batch times.
type Product struct{ Batch, M, N, K int }

// What tiles take on a multiprocessor, as the interpreter counts it for a T4
// (internal/counts), in the time in which a tile of 64 goes a step of 1 along K. One of 128
// takes twice as long, and 2.5 times where it is alone there and nothing hides its
// latencies. Where K is cut there is more to do: an element of a part is written and read
// again, by two kernels more.
const (
	large, lone   = 2, 2.5
	pass, kernels = 0.003, 400
)

// clocks is how long tiles of a side take, by that measure, with K in parts of a size.
func (p Product) clocks(sms, side, parts, size int) float64 {
	each := float64(ceil(p.Tiles(side)*parts, sms)) // of the multiprocessor that has most
	if side == 128 {
		each = max(large*each, lone)
	}
	sum := each * float64(size)
	if parts > 1 {
		sum += kernels + pass*float64(parts)*float64(p.M)*float64(p.N)
	}
	return sum
}

// Tile is the side of a block's square part of the result on a card of some
// multiprocessors: 128, which reads half as much for each product, or 64 where that
// keeps more of them busy.
func (p Product) Tile(sms int) int {
	of := func(side int) float64 {
		parts, size := p.Split(sms, side)
		return p.clocks(sms, side, parts, size)
	}
	if p.M > 64 && p.N > 64 && of(128) <= of(64) {
		return 128
	}
	return 64
}

// Tiles are how many parts of a side the results have.
func (p Product) Tiles(side int) int { return p.Batch * ceil(p.M, side) * ceil(p.N, side) }

// least is how much of K a part has.
const least = 512

// Split cuts a long K into parts of a size where there are too few tiles for the
// card; the sums of the parts are added after.
func (p Product) Split(sms, side int) (parts, size int) {
	parts, size = 1, p.K
	if p.Batch > 1 {
		return parts, size
	}
	best := p.clocks(sms, side, parts, size)
	for n := 2; n <= min(2*sms/p.Tiles(side), p.K/least); n++ {
		of := ceil(ceil(p.K, n), 32) * 32
		if took := p.clocks(sms, side, ceil(p.K, of), of); took < best {
			best, parts, size = took, ceil(p.K, of), of
		}
	}
	return parts, size
}

func ceil(a, b int) int { return (a + b - 1) / b }
