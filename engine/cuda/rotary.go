package cuda

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

func (l *lowering) rotaryTable(n *graph.Node, op graph.RotaryTable) {
	s := op.Scaling.Full()
	p := new(params).ptr(l.at(n.Out[0])).u32(op.T, op.Dims/2).f32(s.Magnitude)
	for _, v := range []float64{math.Pow(op.Base, -2/float64(op.Dims)), 1 / s.Factor, s.Offset, s.PerPair, s.PerFrequency} {
		p.u64(math.Float64bits(v))
	}
	l.run("rotary_table", ceil(op.T*op.Dims/2, 256), 256, p).does("warp", warps(op.T*op.Dims/2))
}

func (l *lowering) rotary(n *graph.Node, op graph.Rotary) {
	x, table, y := n.In[0], n.In[1], n.Out[0]
	s, k := x.Shape(), op.HeadSize([]graph.Type{x.Type})
	// Each head of a row, and of q, k and v if packed, is a group; the groups that are rotated are the first
	// `turned` in each `period`.
	groups, turned, period := op.Heads, op.Heads, op.Heads
	switch op.Layout {
	case graph.PackedHeads:
		groups, turned, period = 3*op.Heads, 2, 3
	case graph.PackedQKV:
		groups, turned, period = 3*op.Heads, 2*op.Heads, 3*op.Heads
	}
	p := new(params).ptr(l.at(x)).ptr(l.at(table)).ptr(l.at(y))
	if op.Offset {
		p.ptr(l.at(n.In[2]))
	} else {
		p.null()
	}
	inverse := 0
	if op.Inverse {
		inverse = 1
	}
	p.u32(s[1], table.Shape()[0], k, op.Dims/2, groups, turned, period, inverse)
	name, wide := "rotary_one_", 1
	if k%4 == 0 && op.Dims%8 == 0 {
		name, wide = "rotary_four_", 4
	}
	rows, units, unit, moved := s[0]*s[1], groups*(k-op.Dims/2)/wide, "warp", traffic(x, y)
	if l.at(x) == l.at(y) { // what does not turn stays where it is
		turning := groups / period * turned
		units, unit = turning*op.Dims/2/wide, "turn"
		moved = moved * int64(turning*op.Dims) / int64(groups*k)
	}
	l.runGrid(name+x.DType().String(), [3]int{rows, ceil(units, 256), 1}, 256, p).
		does("block", rows*ceil(units, 256)).does(unit, rows*warps(units)).moves(moved)
}

func (l *lowering) cacheWrite(n *graph.Node) {
	cache, x, pos := n.In[0], n.In[1], n.In[2]
	s := x.Shape()
	p := new(params).ptr(l.in(cache.DType(), x)).ptr(l.at(pos)).ptr(l.at(cache)).u32(s[1], cache.Shape()[1], s[2])
	blocks := s[0] * s[1] * ceil(s[2], 1024)
	l.runGrid("cache_write_"+cache.DType().String(), [3]int{s[0] * s[1], ceil(s[2], 1024), 1}, 256, p).does("block", blocks).does("line", s[0]*s[1]*warps(s[2]))
}
