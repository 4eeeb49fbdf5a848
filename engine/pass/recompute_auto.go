package pass

import (
	"cmp"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// fit chooses a recipe for each block so that the temporaries fit the budget in the least
// time: a multiple-choice knapsack, solved by its relaxation (Sinha and Zoltners 1979).
// Blocks move from recipe to recipe in the order of seconds per byte saved, and fit takes
// the shortest sequence of moves whose program fits as it will be placed.
func fit(u *Unit) error {
	if u.tried == nil {
		u.tried = map[trialKey]trial{}
		defer func() { u.tried = nil }()
	}
	defer func() { u.latest = nil }()
	moves := movesOf(u)
	if err := u.compete(moves); err != nil {
		return err
	}
	fits := func(k int) (bool, error) {
		t, err := u.try(u.after(moves[:k]))
		return t.most <= u.Budget, err
	}
	ok, err := fits(0)
	lo, hi := -1, 0
	if err == nil && !ok {
		lo, hi = 0, len(moves) // taken even if it does not fit: nothing is smaller
	}
	for err == nil && hi-lo > 1 {
		mid := (lo + hi) / 2
		if ok, err = fits(mid); ok {
			hi = mid
		} else {
			lo = mid
		}
	}
	if err != nil {
		return err
	}
	u.Blocks = u.after(moves[:hi])
	t, err := u.try(u.Blocks)
	if err != nil {
		return err
	}
	if u.F, err = recomputed(u.F, u.Blocks); err == nil {
		t.number(u.F)
	}
	return err
}

// after returns the recipe of each block after some moves.
func (u *Unit) after(moves []move) []Recompute {
	r := make([]Recompute, len(u.Blocks))
	for _, m := range moves {
		r[m.block] = m.to
	}
	return r
}

// everywhere returns the same recipe for every block.
func (u *Unit) everywhere(r Recompute) []Recompute {
	return slices.Repeat([]Recompute{r}, len(u.Blocks))
}

// trial is a function with a recipe for each block, as it would be placed.
type trial struct {
	// The bytes of temporaries are from least to most.
	least, most int64
	// values is how many value IDs it used, plain whether nothing was recomputed.
	values int
	plain  bool
}

// number advances the IDs of f by those that the trial used: the programs that a run records
// show them.
func (t trial) number(f *graph.Func) {
	for f.NumValues() < t.values {
		f.NewValue(graph.Type{})
	}
}

// decides reports whether the trial tells if the bytes of temporaries are within a budget.
func (t trial) decides(budget int64) bool { return t.most <= budget || t.least > budget }

// try places u with a recipe for each block, as well as it takes to tell whether that is within the budget,
// unless that is known already.
func (u *Unit) try(recipe []Recompute) (trial, error) {
	key := u.key(recipe)
	before, again := u.tried[key]
	if again && before.decides(u.Budget) {
		t := before
		if t.plain {
			t.number(u.F)
		}
		return t, nil
	}
	m, err := u.made(recipe)
	if err != nil {
		return trial{}, err
	}
	t := trial{values: m.values, plain: m.plain}
	if t.least, t.most, err = extent(m.f, u.Align, u.Budget); err != nil {
		return trial{}, err
	}
	u.tried[key] = t
	return t, nil
}

// made is u with a recipe for each block after the passes up to order.
type made struct {
	recipe []Recompute
	f      *graph.Func
	values int
	plain  bool // as in trial
}

// made returns u with a recipe for each block.
func (u *Unit) made(recipe []Recompute) (*made, error) {
	if u.latest != nil && slices.Equal(u.latest.recipe, recipe) {
		return u.latest, nil
	}
	f, err := recomputed(u.F, recipe)
	if err != nil {
		return nil, err
	}
	v := Unit{F: f, Align: u.Align, Twice: u.Twice, Fusion: u.Fusion}
	for _, run := range []func(*Unit) error{twice, accumulate, fuse, order} {
		if err := u.interrupted(); err != nil {
			return nil, err
		}
		if err := run(&v); err != nil {
			return nil, err
		}
	}
	u.latest = &made{recipe, v.F, f.NumValues(), f == u.F}
	return u.latest, nil
}

// trialKey is what a trial depends on, besides the function: the recipe of each block, as bytes, and the device.
type trialKey struct {
	recipe string
	align  int64
	fusion Fusion
}

func (u *Unit) key(recipe []Recompute) trialKey {
	k := make([]byte, len(recipe))
	for i, r := range recipe {
		k[i] = byte(r)
	}
	return trialKey{string(k), u.Align, u.fusion()}
}

// move takes a block to another recipe, which saves more and takes longer.
type move struct {
	block int
	to    Recompute
	rate  float64 // seconds per byte
	// seconds that it takes
	seconds float64
}

// movesOf returns the moves worth making, in the order in which to make them.
func movesOf(u *Unit) []move {
	var seconds, bytes [RecomputeSlices][]float64 // by recipe and block
	for r := range RecomputeSlices {
		seconds[r], bytes[r] = worth(u, dropped(u.F, u.everywhere(r)))
	}
	var moves []move
	for b := 1; b < len(u.Blocks); b++ {
		// From recipe to recipe along the convex hull.
		for at := RecomputeNone; ; {
			next := move{block: b}
			for r := at + 1; r < RecomputeSlices; r++ {
				saved := bytes[r][b] - bytes[at][b]
				if rate := (seconds[r][b] - seconds[at][b]) / saved; saved > 0 && (next.to == 0 || rate <= next.rate) {
					next.to, next.rate, next.seconds = r, rate, seconds[r][b]-seconds[at][b]
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

// worth returns what dropping values costs and saves in each block: the seconds of the
// operations to repeat, and the bytes that the backward half reads.
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

// balanced prices a node in operations, on a machine that does ten in the time of one
// byte and whose bus to the host is a twentieth as fast as its memory.
func balanced(n *graph.Node) float64 {
	if in, out := graph.Transferred(n); in+out > 0 {
		return 200 * float64(in+out)
	}
	c := n.Cost()
	return max(c.FLOPs, 10*c.Bytes)
}
