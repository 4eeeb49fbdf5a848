package pass

import (
	"math"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// defUse knows where the values of a function are defined and read. Positions
// are indexes of f.Nodes; tables of values are indexed by ID and hold stored
// values: reading through a view counts as reading the stored value.
type defUse struct {
	f           *graph.Func
	position    map[*graph.Node]int
	readers     [][]int // positions of the nodes that read a value, in order, without views
	pinned      []bool  // inputs, states and outputs, which are not temporaries
	overwritten []int   // position at which the version of a state is overwritten
}

func newDefUse(f *graph.Func) *defUse {
	z := &defUse{
		f:           f,
		position:    make(map[*graph.Node]int, len(f.Nodes)),
		readers:     make([][]int, f.NumValues()),
		pinned:      make([]bool, f.NumValues()),
		overwritten: make([]int, f.NumValues()),
	}
	for i := range z.overwritten {
		z.overwritten[i] = math.MaxInt
	}
	for _, v := range slices.Concat(f.Inputs, f.States) {
		z.pinned[v.ID] = true
	}
	for _, o := range f.Outputs {
		z.pinned[graph.Storage(o.Value).ID] = true
	}
	for i, n := range f.Nodes {
		z.position[n] = i
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
			z.overwritten[n.In[a.In].ID] = i
			z.pinned[n.Out[a.Out].ID] = true
		}
	}
	return z
}

// operandsOf are the stored values that the nodes read, each once.
func operandsOf(nodes ...*graph.Node) []*graph.Value {
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
