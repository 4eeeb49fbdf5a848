package cuda

import (
	"strings"

	"github.com/snug-ml/snug/engine/graph"
)

func (l *lowering) groupedMatmul(n *graph.Node, op graph.GroupedMatMul) {
	x, w, offsets, y := n.In[0], n.In[1], n.In[2], n.Out[0]
	rows, k, groups, cols := x.Shape()[0], x.Shape()[1], w.Shape()[0], y.Shape()[1]
	a, b := l.factors(x, w)
	e := plain(y.DType(), cols, l.at(y))
	if op.Bias { // added in float32, so that the result is rounded only once
		e.first = graph.F32
		e.body = &graph.Body{Inputs: 2, Results: []int{2}, Instrs: []graph.Instr{{Op: graph.Elementwise{Fn: graph.FnAdd}, Arg: []int{0, 1}, DType: y.DType()}}}
		e.in = []placed{{dtype: graph.F32, at: l.at(n.In[3]), extent: perGroup}}
	}
	l.clear(l.at(y), y.Type.Bytes()) // rows that are in no group
	p := new(params).ptr(a.at).ptr(b.at).ptr(l.at(offsets)).u32(cols, k)
	grid := [3]int{ceil(cols, 64) * ceil(rows, 64), 1, groups}
	across := cols
	if op.Trans {
		across = k
	}
	trans := map[bool]string{false: "nn_", true: "nt_"}[op.Trans]
	kernel, threads, step, depth := "grouped_"+trans+"any_"+formatOf(a.dtype), 128, "step", 32
	switch {
	case !l.onTensorCores(a.dtype, op.TF32 && a.dtype == graph.F32):
		l.steppable(cols, k)
		kernel, threads, step, depth = "sgrouped_"+a.dtype.String(), 256, "step "+strings.TrimSuffix(trans, "_"), 8
		p.u32(flag(op.Trans))
	case aligned(a, k) && aligned(b, across):
		kernel = "grouped_" + trans + "64_" + formatOf(a.dtype)
	}
	// Assume that all groups have equally many rows; blocks without rows end at once.
	busy := groups * ceil(ceil(rows, groups), 64) * ceil(cols, 64)
	l.runProduct(kernel, grid, threads, p, e, 64*64, busy, rows*cols).
		does(step, busy*ceil(k, depth)).does("idle", grid[0]*groups-busy).multiplies(rows, cols, k).moves(traffic(x, w))
}

// factors are the factors of a product in one format.
func (l *lowering) factors(x, y *graph.Value) (a, b factor) {
	a, b = factor{dtype: x.DType(), at: l.at(x)}, factor{dtype: y.DType(), at: l.at(y)}
	if a.dtype != b.dtype {
		a, b = l.wide(a, int(x.Shape().Elems())), l.wide(b, int(y.Shape().Elems()))
	}
	return a, b
}

func (l *lowering) groupedOuter(n *graph.Node, op graph.GroupedOuter) {
	x, y, offsets, out := n.In[0], n.In[1], n.In[2], n.Out[0]
	groups, rows, cols := out.Shape()[0], out.Shape()[1], out.Shape()[2]
	a, b := l.factors(x, y)
	e := plain(graph.F32, cols, l.at(out))
	p := new(params).ptr(a.at).ptr(b.at).ptr(l.at(offsets)).u32(rows, cols)
	grid := [3]int{ceil(cols, 64) * ceil(rows, 64), 1, groups}
	kernel, threads, depth := "grouped_outer_any_"+formatOf(a.dtype), 128, 32
	switch {
	case !l.onTensorCores(a.dtype, op.TF32 && a.dtype == graph.F32):
		l.steppable(rows, cols)
		kernel, threads, depth = "sgrouped_outer_"+a.dtype.String(), 256, 8
	case aligned(a, rows) && aligned(b, cols):
		kernel = "grouped_outer_64_" + formatOf(a.dtype)
	}
	inner, tiles := x.Shape()[0], grid[0]*groups
	l.runProduct(kernel, grid, threads, p, e, 64*64, tiles, groups*rows*cols).
		does("step", tiles*ceil(ceil(inner, groups), depth)).multiplies(rows, cols, inner).moves(traffic(x, y))
}
