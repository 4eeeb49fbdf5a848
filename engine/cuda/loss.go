package cuda

import "github.com/snug-ml/snug/engine/graph"

func (l *lowering) crossEntropy(n *graph.Node) {
	x := n.In[0]
	rows := x.Shape()[0]
	losses := l.take(4 * int64(rows))
	l.lossOfRows(x.Type, l.at(x), l.at(n.In[1]), l.at(n.In[2]), l.at(n.Out[1]), losses)
	l.reduceRows("sum_", graph.F32, losses, l.at(n.Out[0]), 1, rows, 1)
}

// lossOfRows computes the log-sum-exp and the weighted loss of each row of logits.
func (l *lowering) lossOfRows(t graph.Type, x, labels, weights, lse, losses address) {
	p := new(params).ptr(x).ptr(labels).ptr(weights).ptr(lse).ptr(losses).u32(t.Shape[1])
	l.run("cross_entropy_"+t.DType.String(), t.Shape[0], 256, p)
}

func (l *lowering) crossEntropyGrad(n *graph.Node) {
	x := n.In[0]
	l.lossGrad(x.Type, l.at(x), l.at(n.In[1]), l.at(n.In[2]), l.at(n.In[3]), l.at(n.In[4]), x.DType(), l.at(n.Out[0]))
}

// lossGrad computes the gradient of the logits in a format, which may lie on the
// logits where that is theirs.
func (l *lowering) lossGrad(t graph.Type, x, labels, weights, lse, dloss address, d graph.DType, dx address) {
	name := "cross_entropy_grad_" + t.DType.String()
	if d != t.DType {
		name += "_" + d.String()
	}
	p := new(params).ptr(x).ptr(labels).ptr(weights).ptr(lse).ptr(dloss).ptr(dx).u32(t.Shape[1])
	l.runGrid(name, [3]int{t.Shape[0], ceil(t.Shape[1], 1024), 1}, 256, 0, p)
}
