package pass

import "github.com/snug-ml/snug/engine/graph"

// products gives each product the elementwise work on its result (bias,
// activation, residual, the gradient of an activation, dropout) as its
// epilogue, done while a tile of the result is in cache, and each gradient of
// a norm the gradient that it is added to. The last ones go first, so that a
// sum of two gradients is done by the one that comes later, when the other is
// known.
func (z *fuser) products() {
	for i := len(z.f.Nodes) - 1; i >= 0; i-- {
		n := z.f.Nodes[i]
		c := &cluster{base: n, at: i, dims: n.Out[0].Shape(), backward: n.Backward}
		switch op := n.Op.(type) {
		case graph.MatMul:
			if !z.can.Epilogues || op.Body != nil || op.Accumulate || len(c.dims) != 2 {
				continue
			}
			z.of[i] = c
			z.grow(c)
		case graph.LayerNormGrad:
			if !z.can.Addends || len(n.In) > 5 {
				continue
			}
			z.of[i] = c
			z.addend(c)
		}
		if len(c.nodes) == 0 {
			z.of[i] = nil
		}
	}
}

// grow lets c take on all work on its values that it can, and on what else it
// reads in full then.
func (z *fuser) grow(c *cluster) {
	for again := true; again; {
		again = false
		vs := c.made()
		for _, s := range stored(c.nodes...) {
			if s.Node != nil && s.Type.Shape.Elems() == c.dims.Elems() {
				vs = append(vs, s)
			}
		}
		for _, v := range vs {
			for _, j := range z.readers[v.ID] {
				n := z.f.Nodes[j]
				if j > c.at && z.of[j] == nil && loop(n) && z.hoist(c, n) {
					again = true
				}
			}
		}
	}
}

// addend lets the gradient of a norm take on the sum with another gradient of
// the same tensor, if nobody else reads it.
func (z *fuser) addend(c *cluster) {
	dx := c.base.Out[0]
	if z.pinned[dx.ID] || len(z.readers[dx.ID]) != 1 {
		return
	}
	j := z.readers[dx.ID][0]
	n := z.f.Nodes[j]
	e, ok := n.Op.(graph.Elementwise)
	if !ok || e.Fn != graph.FnAdd || z.of[j] != nil || n.Out[0].DType() != dx.DType() {
		return
	}
	for _, v := range n.In {
		if v.DType() != dx.DType() || v.Shape().Elems() != dx.Shape().Elems() {
			return
		}
	}
	if graph.Storage(n.In[0]) != graph.Storage(n.In[1]) {
		z.hoist(c, n)
	}
}
