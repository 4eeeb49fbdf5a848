package pass

import "github.com/snug-ml/snug/engine/graph"

// matmuls makes the elementwise work on the result of each matmul (bias, activation,
// residual, gradient of an activation, dropout) its epilogue, done while a tile of the
// result is in cache, and fuses each gradient of a norm with the addition of another
// gradient. It goes from the last node to the first, so that the later of two gradients
// adds them, once the other is defined.
func (z *fuser) matmuls() {
	for i := len(z.f.Nodes) - 1; i >= 0; i-- {
		n := z.f.Nodes[i]
		c := &cluster{base: n, at: i, dims: n.Out[0].Shape(), backward: n.Backward}
		switch op := n.Op.(type) {
		case graph.MatMul:
			if !z.can.Epilogues || op.Body != nil || op.Accumulate || len(c.dims) != 2 {
				continue
			}
			z.of[i] = c
			z.growEpilogue(c)
		case graph.LayerNormGrad:
			if !z.can.Addends || len(n.In) > 5 {
				continue
			}
			z.of[i] = c
			z.addGradient(c)
		}
		if len(c.nodes) == 0 {
			z.of[i] = nil
		}
	}
}

// growEpilogue fuses with c all elementwise work on its values that is legal, and
// then on the other operands that it reads in full. The matmul moves down to what reads it
// along with something computed later.
func (z *fuser) growEpilogue(c *cluster) {
	for again := true; again; {
		again = false
		vs := c.values()
		for _, s := range operandsOf(c.nodes...) {
			if s.Node != nil && s.Type.Shape.Elems() == c.dims.Elems() {
				vs = append(vs, s)
			}
		}
		for _, v := range vs {
			for _, j := range z.readers.of(v.ID) {
				n := z.f.Nodes[j]
				if j > c.at && z.of[j] == nil && loop(n) && (z.fuseUp(c, n) || z.canFuseAt(c, n, j) && z.fuseDown(c, j, nil, n)) {
					again = true
				}
			}
		}
	}
}

// addGradient fuses the gradient of a norm with the addition of another gradient
// of the same tensor, if nothing else reads it.
func (z *fuser) addGradient(c *cluster) {
	dx := c.base.Out[0]
	if z.pinned[dx.ID] || len(z.readers.of(dx.ID)) != 1 {
		return
	}
	j := z.readers.of(dx.ID)[0]
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
		z.fuseUp(c, n)
	}
}
