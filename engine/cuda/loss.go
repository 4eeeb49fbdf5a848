package cuda

import "github.com/snug-ml/snug/engine/graph"

func (l *lowering) crossEntropy(n *graph.Node) {
	x := n.In[0]
	rows, vocab := x.Shape()[0], x.Shape()[1]
	losses := l.take(4 * int64(rows))
	p := new(params).ptr(l.at(x)).ptr(l.at(n.In[1])).ptr(l.at(n.In[2])).ptr(l.at(n.Out[1])).ptr(losses).u32(vocab)
	l.run("cross_entropy_"+x.DType().String(), rows, 256, p).does("row", rows).does("line", rows*warps(vocab)).overRows()
	l.reduceRows("sum_", graph.F32, losses, l.at(n.Out[0]), 1, rows, 1)
}

func (l *lowering) crossEntropyGrad(n *graph.Node) {
	x := n.In[0]
	rows, vocab := x.Shape()[0], x.Shape()[1]
	p := new(params).ptr(l.at(x)).ptr(l.at(n.In[1])).ptr(l.at(n.In[2])).ptr(l.at(n.In[3])).ptr(l.at(n.In[4])).ptr(l.at(n.Out[0])).u32(vocab)
	l.runGrid("cross_entropy_grad_"+x.DType().String(), [3]int{rows, ceil(vocab, 1024), 1}, 256, p).
		does("block", rows*ceil(vocab, 1024)).does("line", rows*warps(vocab)).overRows()
}
