package cuda

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// adamBatch is AdamW of several parameters, nodes in a row, that becomes one launch.
type adamBatch struct {
	op      graph.AdamW // but for its decay and scale of the rate
	scalars [4]address
	nodes   []*graph.Node
	table   params
	blocks  int
}

// adamW adds a parameter to the batch that the nodes before it began.
func (l *lowering) adamW(n *graph.Node, op graph.AdamW) {
	same := op
	same.WeightDecay, same.LRScale = 0, 0
	var scalars [4]address
	for i, v := range n.In[4:] {
		scalars[i] = l.at(v)
	}
	if b := l.adam; b == nil || b.op != same || b.scalars != scalars {
		l.flush()
		l.adam = &adamBatch{op: same, scalars: scalars}
	}
	b := l.adam
	b.nodes = append(b.nodes, n)
	for _, v := range n.In[:4] {
		b.table.ptr(l.at(v))
	}
	elems := n.In[0].Shape().Elems()
	b.table.u64(uint64(elems)).u32(b.blocks).f32(op.WeightDecay, op.LRScale).align(8)
	b.blocks += int(ceil(elems, 1024))
}

// flush launches the batch that was begun.
func (l *lowering) flush() {
	b := l.adam
	if b == nil {
		return
	}
	l.adam = nil
	p := new(params).ptr(l.table(&b.table)).u32(len(b.nodes))
	for _, s := range b.scalars {
		p.ptr(s)
	}
	op := b.op
	p.f32(op.Beta1, op.Beta2, 1-op.Beta1, 1-op.Beta2, math.Log(op.Beta1), math.Log(op.Beta2), op.Eps).u32(flag(op.ZeroGrad))
	l.n = b.nodes[0]
	l.run("adamw", b.blocks, 256, p)
	l.launches[len(l.launches)-1].also = b.nodes[1:]
}

func (l *lowering) globalNorm(n *graph.Node) {
	const part = 16384 // elements of a block
	blocks := 0
	var table params
	for _, v := range n.In {
		elems := v.Shape().Elems()
		table.ptr(l.at(v)).u64(uint64(elems)).u32(blocks).align(8)
		blocks += int(ceil(elems, part))
	}
	partial := l.take(8 * int64(blocks))
	l.run("sum_squares", blocks, 256, new(params).ptr(l.table(&table)).u32(len(n.In)).ptr(partial))
	l.run("root_of_sum", 1, 256, new(params).ptr(partial).ptr(l.at(n.Out[0])).u32(blocks))
}
