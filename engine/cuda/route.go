package cuda

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

func (l *lowering) route(n *graph.Node, op graph.Route) {
	choice, wanted := n.In[0], l.at(n.Out[3])
	choices := int(choice.Shape().Elems())
	capacity := math.MaxUint32
	if op.Capacity > 0 {
		capacity = op.Capacity
	}
	l.run("moe_count", op.Experts, 256, new(params).ptr(l.at(choice)).ptr(wanted).u32(choices)).
		does("block", op.Experts).does("line", op.Experts*warps(choices)).moves(traffic(choice))
	p := new(params).ptr(l.at(choice)).ptr(wanted).ptr(l.at(n.Out[0])).ptr(l.at(n.Out[1])).ptr(l.at(n.Out[2]))
	l.run("moe_place", op.Experts, 256, p.u32(choices, n.Out[1].Shape()[0], capacity)).
		does("block", op.Experts).does("look", op.Experts*ceil(choices, 256)).does("found", warps(choices)).moves(traffic(choice, n.Out[0], n.Out[1]))
}

// dispatch and combine move rows: an entry of from says where each row of the result comes from.
func (l *lowering) dispatch(n *graph.Node, weighted bool) {
	l.moveRows("moe_dispatch", n, n.In[2], weighted)
}

func (l *lowering) combine(n *graph.Node, weighted bool) {
	l.moveRows("moe_combine", n, n.In[1], weighted)
}

func (l *lowering) moveRows(name string, n *graph.Node, from *graph.Value, weighted bool) {
	x, y, slot := n.In[0], n.Out[0], n.In[1]
	width, wide := x.Shape()[1], int(16/x.DType().Size())
	if width%wide != 0 {
		wide = 1
	}
	p := new(params).ptr(l.at(x)).ptr(l.at(from))
	if weighted {
		p.ptr(l.at(n.In[3]))
	} else {
		p.null()
	}
	pieces := y.Shape().Elems() / int64(wide)
	p.ptr(l.at(y)).u64(uint64(pieces)).u32(width, slot.Shape()[1])
	w := warps(int(pieces))
	done := l.run(fmt.Sprintf("%s_%d_%v", name, wide, x.DType()), perElement(pieces), 256, p).does("warp", w)
	if name == "moe_combine" { // the rows that a token chose
		done.does("row", w*slot.Shape()[1])
	}
}

func (l *lowering) routedDot(n *graph.Node) {
	x, y, slot := n.In[0], n.In[1], n.In[2]
	choices := int(slot.Shape().Elems())
	d, at := l.alike(x, y)
	p := new(params).ptr(at[0]).ptr(at[1]).ptr(l.at(slot)).ptr(l.at(n.Out[0])).u32(choices, x.Shape()[1], slot.Shape()[1])
	l.run("moe_dot_"+d.String(), ceil(choices, 8), 256, p).does("row", choices).does("line", choices*warps(x.Shape()[1]))
}

// alike gives values in one format: their own, or float32 if they differ.
func (l *lowering) alike(vs ...*graph.Value) (graph.DType, []address) {
	d := vs[0].DType()
	for _, v := range vs {
		if v.DType() != d {
			d = graph.F32
		}
	}
	at := make([]address, len(vs))
	for i, v := range vs {
		if v.DType() == d {
			at[i] = l.at(v)
		} else {
			at[i] = l.widened(v)
		}
	}
	return d, at
}

func (l *lowering) groupedSum(n *graph.Node) {
	x, offsets := n.In[0], n.In[1]
	width, groups := x.Shape()[1], offsets.Shape()[0]-1
	p := new(params).ptr(l.at(x)).ptr(l.at(offsets)).ptr(l.at(n.Out[0])).u32(width)
	l.runGrid("grouped_sum_"+x.DType().String(), [3]int{ceil(width, 32), groups, 1}, 256, p).
		does("block", warps(width)*groups).does("line", warps(width)*x.Shape()[0])
}
