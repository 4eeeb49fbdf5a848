package cuda

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// perElement is the number of blocks of 256 threads for a kernel whose threads step over the elements by the
// size of the grid.
func perElement(elems int64) int { return int(min(ceil(elems, 256), 1<<20)) }

func (l *lowering) gather(n *graph.Node) {
	x, index, y := n.In[0], n.In[1], n.Out[0]
	elems := y.Shape().Elems()
	p := new(params).ptr(l.at(x)).ptr(l.at(index)).ptr(l.at(y)).u64(uint64(elems)).u32(x.Shape().Last(), y.Shape().Last())
	l.run(fmt.Sprintf("gather_%d", x.DType().Size()), perElement(elems), 256, p).does("warp", warps(int(elems)))
}

func (l *lowering) scatter(n *graph.Node) {
	x, index, y := n.In[0], n.In[1], n.Out[0]
	elems := y.Shape().Elems()
	p := new(params).ptr(l.at(x)).ptr(l.at(index)).ptr(l.at(y)).u64(uint64(elems)).u32(y.Shape().Last(), x.Shape().Last())
	w := warps(int(elems))
	l.run("scatter_"+x.DType().String(), perElement(elems), 256, p).does("warp", w).does("pick", w*x.Shape().Last()).moves(traffic(x, index, y))
}

func (l *lowering) topK(n *graph.Node, op graph.TopK) {
	x := n.In[0]
	width, p := x.Shape().Last(), new(params).ptr(l.at(x)).ptr(l.at(n.Out[0])).ptr(l.at(n.Out[1]))
	if width > 128 {
		rows := x.Shape().Rows()
		l.run("top_k_long_"+x.DType().String(), rows, 256, p.u32(width, op.K)).
			does("row", rows).does("pick", rows*op.K).does("line", rows*op.K*warps(width)).moves(traffic(x))
		return
	}
	elems := x.Shape().Elems()
	w := warps(int(elems))
	l.run("top_k_short_"+x.DType().String(), perElement(elems), 256, p.u64(uint64(elems)).u32(width, op.K)).
		does("warp", w).does("other", w*width).moves(traffic(x))
}

func (l *lowering) argMax(n *graph.Node) {
	x := n.In[0]
	rows, width, p := x.Shape().Rows(), x.Shape().Last(), new(params).ptr(l.at(x)).ptr(l.at(n.Out[0]))
	if width > 1024 {
		l.run("arg_max_long_"+x.DType().String(), rows, 256, p.u32(width)).does("row", rows).does("line", rows*warps(width))
		return
	}
	l.run("arg_max_short_"+x.DType().String(), ceil(rows, 8), 256, p.u32(rows, width)).does("row", rows).does("line", rows*warps(width))
}

func (l *lowering) oneHot(n *graph.Node, op graph.OneHot) {
	elems := n.Out[0].Shape().Elems()
	l.run("one_hot", perElement(elems), 256, new(params).ptr(l.at(n.In[0])).ptr(l.at(n.Out[0])).u64(uint64(elems)).u32(op.N)).does("warp", warps(int(elems)))
}
