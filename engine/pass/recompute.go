package pass

import (
	"fmt"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// Recompute says which activations a block drops after its forward half and
// rebuilds when its backward half needs them (Chen et al. 2016).
type Recompute uint8

// The recipes, from dropping nothing to dropping everything.
const (
	RecomputeNone       Recompute = iota // keep all
	RecomputeActivation                  // drop the results of elementwise functions: the most bytes for the least time
	RecomputeSelective                   // drop everything that can be rebuilt without a matmul
	RecomputeWide                        // also the results of matmuls that are much wider than their operands
	RecomputeFull                        // drop everything except the block's inputs
	RecomputeSlices                      // also compute both halves of the block in parts of the batch (see slice)
	RecomputeAuto                        // for each block the least of those up to full that fits the budget
)

var recomputeNames = [...]string{"none", "activation", "selective", "wide", "full", "slices", "auto"}

func (r Recompute) String() string { return recomputeNames[r] }

// MarshalText returns the name.
func (r Recompute) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the name.
func (r *Recompute) UnmarshalText(name []byte) (err error) {
	*r, err = ParseRecompute(string(name))
	return err
}

// ParseRecompute is the inverse of String.
func ParseRecompute(s string) (Recompute, error) {
	for i, n := range recomputeNames {
		if n == s {
			return Recompute(i), nil
		}
	}
	return 0, fmt.Errorf("unknown recompute mode %q: expected none, activation, selective, wide, full, slices or auto", s)
}

// recompute is the pass. Values do not change: every operation is deterministic and
// random numbers depend only on counters.
func recompute(u *Unit) error {
	blocks := 0
	for _, n := range u.F.Nodes {
		blocks = max(blocks, n.Block)
	}
	u.Blocks = make([]Recompute, blocks+1)
	if blocks == 0 || u.Loss == "" {
		return nil
	}
	if u.Recompute == RecomputeAuto {
		return fit(u)
	}
	for i := 1; i <= blocks; i++ {
		u.Blocks[i] = u.Recompute
	}
	f, err := recomputed(u.F, u.Blocks)
	if err == nil {
		u.F = f
	}
	return err
}

// recomputed clones, before its first backward use in each block, what the
// block's recipe drops. A value that was made from a version of a state that is
// gone by then is kept.
func recomputed(f *graph.Func, recipe []Recompute) (*graph.Func, error) {
	drop := dropped(f, recipe)
	if len(drop) == 0 {
		return f, nil
	}
	written := map[int]int{} // where a version of a state is overwritten
	for i, n := range f.Nodes {
		for _, a := range graph.Aliases(n.Op, len(n.In)) {
			written[n.In[a.In].ID] = i
		}
	}
	// A clone serves the backward half of one block.
	type key struct{ id, block int }
	clones := map[key]*graph.Value{}
	at := -1
	return f.Rewrite(func(b *graph.Builder, n *graph.Node, in []*graph.Value) []*graph.Value {
		at++
		if !n.Backward {
			return nil
		}
		gone := func(v *graph.Value) bool {
			i, ok := written[graph.Storage(v).ID]
			return ok && i < at
		}
		var clone func(v *graph.Value) *graph.Value
		clone = func(v *graph.Value) *graph.Value {
			p := v.Node
			if p == nil || !drop[v.ID] || slices.ContainsFunc(p.In, gone) {
				return b.Now(v)
			}
			k := key{v.ID, n.Block}
			if c := clones[k]; c != nil {
				return c
			}
			args := make([]*graph.Value, len(p.In))
			for i, w := range p.In {
				args[i] = clone(w)
			}
			b.At(p, func() {
				b.InBackward(func() {
					b.AsClone(func() {
						op := p.Op
						if norm, ok := op.(graph.ChannelNorm); ok && given(p.Out[1]) {
							norm.Given = true
							op, args = norm, append(args, b.Now(p.Out[1]), b.Now(p.Out[2]))
						}
						for i, c := range b.Emit(op, args...) {
							clones[key{p.Out[i].ID, n.Block}] = c
						}
					})
				})
			})
			return clones[k]
		}
		for i, v := range n.In {
			in[i] = clone(v)
		}
		return nil
	})
}

// dropped are the forward values, by ID, that are not kept for the backward half.
func dropped(f *graph.Func, recipe []Recompute) map[int]bool {
	saved := make([]bool, f.NumValues())   // read by the backward half
	crosses := make([]bool, f.NumValues()) // read by another block's forward half, or an output
	for _, n := range f.Nodes {
		for _, v := range n.In {
			if n.Backward {
				saved[v.ID] = true
			} else if v.Node != nil && v.Node.Block != n.Block {
				crosses[v.ID] = true
			}
		}
	}
	for _, o := range f.Outputs {
		crosses[o.Value.ID] = true
	}
	drop := map[int]bool{}
	// available: known in the backward half without a matmul.
	available := make([]bool, f.NumValues())
	// parameter: a state, or made of states alone.
	parameter := make([]bool, f.NumValues())
	for _, v := range f.States {
		parameter[v.ID] = true
	}
	for _, n := range f.Nodes {
		if n.Backward {
			continue
		}
		made := len(n.In) > 0 && !slices.ContainsFunc(n.In, func(v *graph.Value) bool { return !parameter[v.ID] })
		for _, v := range n.Out {
			parameter[v.ID] = made
		}
		r := RecomputeNone
		if n.Block > 0 {
			r = recipe[n.Block]
		}
		operands := true
		for _, v := range n.In {
			operands = operands && (v.Node == nil || available[v.ID] || v.Node.Block != n.Block)
		}
		for _, v := range n.Out {
			switch {
			case r == RecomputeNone || crosses[v.ID] || graph.HasEffect(n.Op, len(n.In)):
				available[v.ID] = saved[v.ID] || crosses[v.ID]
			case given(v):
				available[v.ID] = true
			case r >= RecomputeFull:
				drop[v.ID] = true
			case operands && (cheap(n, r) || r == RecomputeWide && widens(n, parameter)):
				drop[v.ID] = true
				available[v.ID] = true
			default:
				available[v.ID] = saved[v.ID]
			}
		}
	}
	return drop
}

// given reports whether v is a statistic of a batch normalization: it is kept, so that
// some rows can be normalized again without the others.
func given(v *graph.Value) bool {
	op, ok := v.Node.Op.(graph.ChannelNorm)
	return ok && op.Groups == 0 && v.Index > 0
}

// cheap reports whether recipe r rebuilds the results of n.
func cheap(n *graph.Node, r Recompute) bool {
	if graph.IsView(n.Op) {
		return true
	}
	if r == RecomputeActivation {
		switch n.Op.(type) {
		case graph.Elementwise, graph.Dropout:
			return true
		}
		return batchNorm(n) // its statistics are kept
	}
	return n.Cost().MatrixFLOPs == 0
}

// widens reports whether a matmul writes at least twice the bytes that it reads,
// parameters aside: the first of a feed-forward layer, or queries, keys and values in
// one. Of all matmuls these take the fewest operations per byte.
func widens(n *graph.Node, parameter []bool) bool {
	var in, out int64
	for _, v := range n.In {
		if !parameter[v.ID] {
			in += v.Type.Bytes()
		}
	}
	for _, v := range n.Out {
		out += v.Type.Bytes()
	}
	return out >= 2*in
}
