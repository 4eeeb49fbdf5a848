package cuda

import "github.com/snug-ml/snug/engine/graph"

// relateInto launches a kernel that goes over the pairs; operands are p and q, preceded by dy for gradients.
func (l *lowering) relateInto(kernel string, op graph.Relate, operands []*graph.Value, segment *graph.Value, shares address, out *graph.Value) {
	const tile = 8 // positions per block
	s := out.Shape()
	p := new(params)
	for _, v := range operands {
		p.ptr(l.at(v))
	}
	p.ptr(l.at(segment)).ptr(shares).ptr(l.at(out)).u32(s[1], s[2], op.From, op.To)
	// Assume that all positions are in one segment.
	blocks := s[0] * ceil(s[1], tile) * ceil(s[2], 128)
	l.runGrid(kernel, [3]int{s[0] * ceil(s[1], tile), ceil(s[2], 128), 1}, 128, p).
		does("block", blocks).does("position", tile*s[0]*ceil(s[2], 128)*stairs(ceil(s[1], tile), 1)).moves(traffic(operands...), traffic(out))
}

// relateShares computes, for each position, one over the number of positions that it is related to.
func (l *lowering) relateShares(segment *graph.Value) address {
	s := segment.Shape()
	positions := s[0] * s[1]
	shares := l.take(4 * int64(positions))
	l.run("relate_shares", ceil(positions, 8), 256, new(params).ptr(l.at(segment)).ptr(shares).u32(positions, s[1])).
		does("row", positions).does("line", s[0]*stairs(s[1], 32)).moves(2 * traffic(segment))
	return shares
}

func (l *lowering) relate(n *graph.Node, op graph.Relate) {
	l.relateInto("relate", op, n.In[:2], n.In[2], l.relateShares(n.In[2]), n.Out[0])
}

func (l *lowering) relateGrad(n *graph.Node, op graph.Relate) {
	shares := l.relateShares(n.In[3])
	l.relateInto("relate_grad_p", op, n.In[:3], n.In[3], shares, n.Out[0])
	l.relateInto("relate_grad_q", op, n.In[:3], n.In[3], shares, n.Out[1])
}
