package cuda

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

func (l *lowering) adamW(n *graph.Node, op graph.AdamW) {
	p := new(params)
	for _, v := range n.In {
		p.ptr(l.at(v))
	}
	elems := n.In[0].Shape().Elems()
	p.u64(uint64(elems)).f32(op.Beta1, op.Beta2, 1-op.Beta1, 1-op.Beta2, math.Log(op.Beta1), math.Log(op.Beta2), op.Eps, op.WeightDecay, op.LRScale)
	zero := 0
	if op.ZeroGrad {
		zero = 1
	}
	l.run("adamw", int(ceil(elems, 1024)), 256, p.u32(zero))
}

func (l *lowering) globalNorm(n *graph.Node) {
	const part = 16384 // elements of a block
	parts := 0
	for _, v := range n.In {
		parts += int(ceil(v.Shape().Elems(), part))
	}
	partial := l.take(8 * int64(parts))
	at := partial
	for _, v := range n.In {
		elems := v.Shape().Elems()
		blocks := ceil(elems, part)
		l.run("sum_squares", int(blocks), 256, new(params).ptr(l.at(v)).ptr(at).u64(uint64(elems)))
		at = at.plus(8 * blocks)
	}
	l.run("root_of_sum", 1, 256, new(params).ptr(partial).ptr(l.at(n.Out[0])).u32(parts))
}
