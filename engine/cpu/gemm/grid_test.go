package gemm

import (
	"math/rand/v2"
	"testing"
)

// A remembered grid is the one that would be chosen anew: whatever it depends on is in the key.
func TestChosenGrid(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...int) int { return of[rng.IntN(len(of))] }
	remembered := 0
	for range 3000 {
		opts := Options{Workers: pick(1, 2, 7), MB: pick(0, 0, 8), NB: pick(0, 0, 64), KC: pick(0, 0, 32), SharedLimit: pick(0, 1<<16, 1<<18)}
		if rng.IntN(2) == 0 {
			opts.Compute = BF16
		}
		a, b := F32, F32
		transA := rng.IntN(2) == 0
		if !transA && rng.IntN(3) == 0 {
			opts.MapA = func(dst, x []float32) { copy(dst, x) }
		}
		c := F32
		if rng.IntN(2) == 0 {
			c = BF16
		}
		m, n, k := pick(1, 17, 64, 200, 1000), pick(8, 33, 256, 1100), pick(1, 40, 256, 1500)
		before := len(chosen.grids)
		p := NewPlan(m, n, k, a, b, c, transA, rng.IntN(2) == 0, opts)
		if len(chosen.grids) == before {
			remembered++
		}
		if want := p.bestGrid(p.workers, opts); p.grid != want {
			t.Fatalf("%d x %d x %d, %+v: the grid is %+v, chosen anew %+v", m, n, k, opts, p.grid, want)
		}
	}
	if remembered < 100 {
		t.Errorf("%d grids were remembered: the test compares nothing", remembered)
	}
}
