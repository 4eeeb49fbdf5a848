package pack

import (
	"math"
	"math/rand/v2"
	"slices"
)

// search improves the best order by squeaky-wheel moves: place, find the buffer that reaches the
// top, move it and a few others forward, place again. Slightly worse orders are accepted now and
// then. The random numbers have a fixed seed and the effort is counted in placements, so the
// result depends only on the input.
func (p *packer) search(goal int64, tries int) {
	if p.best <= goal || tries <= 0 {
		return
	}
	rng := rand.New(rand.NewPCG(0x736e7567, uint64(len(p.items))))
	current := slices.Clone(p.ranking)
	a := &p.attempts[0]
	size, top := a.place(p.items, current, firstFit, math.MaxInt64)
	next := make([]int32, len(current))
	for range tries {
		if p.best <= goal {
			return
		}
		copy(next, current)
		moveForward(next, slices.Index(next, top), rng)
		for range rng.IntN(3) {
			moveForward(next, rng.IntN(len(next)), rng)
		}
		p.tried++
		// An order more than 2 % worse than the current one is not worth finishing.
		n, at := a.place(p.items, next, firstFit, size+size/50+1)
		if n < p.best {
			p.best = n
			p.method = "search"
			copy(p.offsets, a.offsets)
			copy(p.ranking, next)
		}
		if n <= size || n <= size+size/50 && rng.IntN(50) == 0 {
			current, next = next, current
			size, top = n, at
		}
	}
}

// moveForward takes the item at position from and puts it at a random earlier position.
func moveForward(ranking []int32, from int, rng *rand.Rand) {
	to := rng.IntN(from + 1)
	it := ranking[from]
	copy(ranking[to+1:from+1], ranking[to:from])
	ranking[to] = it
}
