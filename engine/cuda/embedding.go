package cuda

import "github.com/snug-ml/snug/engine/graph"

func (l *lowering) embedding(n *graph.Node) {
	table, ids, y := n.In[0], n.In[1], n.Out[0]
	rows, width := int(ids.Shape().Elems()), table.Shape()[1]
	p := new(params).ptr(l.at(table)).ptr(l.at(ids)).ptr(l.at(y)).u32(rows, width, table.Shape()[0])
	l.run("embedding_"+table.DType().String()+"_"+y.DType().String(), min(ceil(rows*width, 256), 1<<20), 256, p).does("warp", warps(rows*width))
}

func (l *lowering) embeddingGrad(n *graph.Node, op graph.EmbeddingGrad) {
	dy, ids, table := n.In[0], n.In[1], n.Out[0]
	rows, width := int(ids.Shape().Elems()), table.Shape()[1]
	to := l.at(table)
	switch {
	case len(n.In) < 3:
		l.clear(to, table.Type.Bytes())
	case l.at(n.In[2]) != to:
		s := table.Shape().Strides(table.Shape())
		l.copyLoop(table.Shape(), strided{dtype: graph.F32, at: l.at(n.In[2]), stride: s}, strided{dtype: graph.F32, at: to, stride: s})
	}
	sorted, from := l.sorted(l.at(ids), rows, op.Vocab)
	p := new(params).ptr(l.at(dy)).ptr(sorted).ptr(from).ptr(to).u32(rows, width, op.Vocab)
	// The cost depends on how often ids repeat; assume they do as evenly as possible.
	wide, different := ceil(width, 1024), min(rows, op.Vocab)
	each := ceil(rows, different)
	l.runGrid("embedding_grad_"+dy.DType().String(), [3]int{rows, wide, 1}, 256, p).
		does("block", rows*wide).does("id", different*wide).does("look", different*wide*ceil(each+1, 32)).
		does("group", different*wide*ceil(each, 4)).does("line", different*ceil(each, 4)*warps(width)).
		moves(traffic(dy), 8*int64(different)*int64(width))
}
