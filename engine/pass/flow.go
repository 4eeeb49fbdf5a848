package pass

import (
	"math"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// flow knows who reads what in a function. Positions are indexes of f.Nodes;
// tables of values are indexed by ID and hold stored values: what is read
// through a view counts as read itself.
type flow struct {
	f       *graph.Func
	at      map[*graph.Node]int
	readers [][]int // positions of what reads a value, in order, views aside
	pinned  []bool  // inputs, states, outputs: no temporaries
	written []int   // position at which the version of a state is overwritten
}

func newFlow(f *graph.Func) *flow {
	z := &flow{
		f:       f,
		at:      make(map[*graph.Node]int, len(f.Nodes)),
		readers: make([][]int, f.NumValues()),
		pinned:  make([]bool, f.NumValues()),
		written: make([]int, f.NumValues()),
	}
	for i := range z.written {
		z.written[i] = math.MaxInt
	}
	for _, v := range slices.Concat(f.Inputs, f.States) {
		z.pinned[v.ID] = true
	}
	for _, o := range f.Outputs {
		z.pinned[graph.Storage(o.Value).ID] = true
	}
	for i, n := range f.Nodes {
		z.at[n] = i
		if graph.IsView(n.Op) {
			continue
		}
		for _, v := range n.In {
			id := graph.Storage(v).ID
			if r := z.readers[id]; len(r) == 0 || r[len(r)-1] != i {
				z.readers[id] = append(r, i)
			}
		}
		for _, a := range graph.Aliases(n.Op, len(n.In)) {
			z.written[n.In[a.In].ID] = i
			z.pinned[n.Out[a.Out].ID] = true
		}
	}
	return z
}

// stored are the stored values that the nodes read, each once.
func stored(nodes ...*graph.Node) []*graph.Value {
	var vs []*graph.Value
	for _, n := range nodes {
		for _, v := range n.In {
			if s := graph.Storage(v); !slices.Contains(vs, s) {
				vs = append(vs, s)
			}
		}
	}
	return vs
}
