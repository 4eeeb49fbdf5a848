package pass

import (
	"math"
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// defUse records where the values of a function are defined and read. Positions are
// indexes of f.Nodes; tables of values are indexed by ID and hold stored values: reading
// through a view counts as reading the stored value.
type defUse struct {
	f           *graph.Func
	position    positions
	readers     readers // positions of the nodes that read a value, in order, without views
	pinned      []bool  // inputs, states and outputs, which are not temporaries
	overwritten []int32 // position at which the version of a state is overwritten
}

// positions are the indexes of the nodes of a function, by the ID of a node's first result.
type positions []int32

func positionsOf(f *graph.Func) positions {
	p := make(positions, f.NumValues())
	for i, n := range f.Nodes {
		p[n.Out[0].ID] = int32(i)
	}
	return p
}

// of returns the index of n.
func (p positions) of(n *graph.Node) int { return int(p[n.Out[0].ID]) }

// readers are, by a value's ID, the positions of the nodes that read it, as parts of one list.
type readers struct {
	list     []int
	from, to []int32
}

// of returns the list of the value with an ID. It must not be appended to.
func (r *readers) of(id int) []int { return r.list[r.from[id]:r.to[id]:r.to[id]] }

func newDefUse(f *graph.Func) *defUse {
	z := &defUse{
		f:           f,
		position:    positionsOf(f),
		readers:     readers{from: make([]int32, f.NumValues()), to: make([]int32, f.NumValues())},
		pinned:      make([]bool, f.NumValues()),
		overwritten: make([]int32, f.NumValues()),
	}
	for i := range z.overwritten {
		z.overwritten[i] = math.MaxInt32
	}
	reads := int32(0)
	for _, n := range f.Nodes {
		if !graph.IsView(n.Op) {
			for _, v := range n.In {
				z.readers.to[graph.Storage(v).ID]++
				reads++
			}
		}
	}
	z.readers.list = make([]int, reads)
	at := int32(0)
	for id, n := range z.readers.to {
		z.readers.from[id], z.readers.to[id] = at, at
		at += n
	}
	for _, v := range slices.Concat(f.Inputs, f.States) {
		z.pinned[v.ID] = true
	}
	for _, o := range f.Outputs {
		z.pinned[graph.Storage(o.Value).ID] = true
	}
	for i, n := range f.Nodes {
		if graph.IsView(n.Op) {
			continue
		}
		for _, v := range n.In {
			id := graph.Storage(v).ID
			if r := z.readers.of(id); len(r) == 0 || r[len(r)-1] != i {
				z.readers.list[z.readers.to[id]] = i
				z.readers.to[id]++
			}
		}
		for _, a := range graph.Aliases(n.Op, len(n.In)) {
			z.overwritten[n.In[a.In].ID] = int32(i)
			z.pinned[n.Out[a.Out].ID] = true
		}
	}
	return z
}

// operandsOf returns the stored values that the nodes read, each once.
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
