package pass

import (
	"cmp"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// fit chooses a recipe for each block so that the temporaries fit the budget
// for the least time: a multiple-choice knapsack, solved by its relaxation
// (Sinha and Zoltners 1979). Blocks move from recipe to recipe in the order of
// seconds per byte saved, and the shortest run of moves whose program fits, as
// it will be placed, is taken.
func fit(u *Unit) error {
	moves := movesOf(u)
	after := func(k int) []Recompute {
		r := make([]Recompute, len(u.Blocks))
		for _, m := range moves[:k] {
			r[m.block] = m.to
		}
		return r
	}
	fits := func(k int) (*graph.Func, bool, error) {
		f, err := recomputed(u.F, after(k))
		if err != nil {
			return nil, false, err
		}
		v := Unit{F: f, Align: u.Align}
		for _, run := range []func(*Unit) error{accumulate, fuse, order, place} {
			if err := u.interrupted(); err != nil {
				return nil, false, err
			}
			if err := run(&v); err != nil {
				return nil, false, err
			}
		}
		return f, v.Placement.Bytes <= u.Budget, nil
	}
	best, ok, err := fits(0)
	lo, hi := -1, 0
	if err == nil && !ok {
		lo, hi = 0, len(moves)
		best, _, err = fits(hi) // taken even if it does not fit: nothing is smaller
	}
	for err == nil && hi-lo > 1 {
		var f *graph.Func
		mid := (lo + hi) / 2
		if f, ok, err = fits(mid); ok {
			hi, best = mid, f
		} else {
			lo = mid
		}
	}
	if err == nil {
		u.F, u.Blocks = best, after(hi)
	}
	return err
}

// move brings a block to another recipe, which saves more and takes longer.
type move struct {
	block int
	to    Recompute
	rate  float64 // seconds per byte
}

// movesOf are the moves worth making, in the order in which to make them.
func movesOf(u *Unit) []move {
	var seconds, bytes [RecomputeSlices][]float64 // by recipe and block
	for r := range RecomputeSlices {
		all := make([]Recompute, len(u.Blocks))
		for i := range all {
			all[i] = r
		}
		seconds[r], bytes[r] = worth(u, dropped(u.F, all))
	}
	var moves []move
	for b := 1; b < len(u.Blocks); b++ {
		// From recipe to recipe along the convex hull.
		for at := RecomputeNone; ; {
			next := move{block: b}
			for r := at + 1; r < RecomputeSlices; r++ {
				saved := bytes[r][b] - bytes[at][b]
				if rate := (seconds[r][b] - seconds[at][b]) / saved; saved > 0 && (next.to == 0 || rate <= next.rate) {
					next.to, next.rate = r, rate
				}
			}
			if next.to == 0 {
				break
			}
			moves = append(moves, next)
			at = next.to
		}
	}
	slices.SortStableFunc(moves, func(a, b move) int { return cmp.Compare(a.rate, b.rate) })
	return moves
}

// worth is what dropping values costs and saves in each block: the seconds of
// the operations to be repeated, and the bytes that the backward half reads.
func worth(u *Unit, drop map[int]bool) (seconds, bytes []float64) {
	seconds, bytes = make([]float64, len(u.Blocks)), make([]float64, len(u.Blocks))
	price := u.Price
	if price == nil {
		price = balanced
	}
	needed := make([]bool, u.F.NumValues()) // by the backward half or to repeat something
	saved := make([]bool, u.F.NumValues())  // stored for the backward half
	for i := len(u.F.Nodes) - 1; i >= 0; i-- {
		n := u.F.Nodes[i]
		again := n.Backward
		for _, v := range n.Out {
			if !n.Backward && drop[v.ID] {
				again = again || needed[v.ID]
				if saved[v.ID] {
					bytes[n.Block] += float64(v.Type.Bytes())
				}
			}
		}
		if again && !n.Backward {
			seconds[n.Block] += price(n)
		}
		for _, v := range n.In {
			needed[v.ID] = needed[v.ID] || again
			saved[graph.Storage(v).ID] = saved[graph.Storage(v).ID] || n.Backward
		}
	}
	return seconds, bytes
}

// balanced prices a node in operations, on a machine that does ten in the time of
// one byte.
func balanced(n *graph.Node) float64 {
	c := n.Cost()
	return max(c.FLOPs, 10*c.Bytes)
}
