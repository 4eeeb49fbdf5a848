package cpu

import (
	"github.com/snug-ml/snug/engine/cpu/simd"
	"github.com/snug-ml/snug/engine/graph"
)

// rowDotLimit is up to how many rows of A a product A B^T reads B where it
// lies: each row of B is a dot product away, and packing it first would cost
// more than the product.
const rowDotLimit = 4

// rowDots reports whether a product of these extents is done by dot products:
// writing text token by token is nothing else.
func rowDots(op graph.MatMul, n *graph.Node, batch, rows int) bool {
	return batch == 1 && rows <= rowDotLimit && op.TransB && !op.TransA && !op.Accumulate && op.Body == nil &&
		n.In[0].DType() == graph.F32 && n.Out[0].DType() == graph.F32 && n.In[1].DType().Float()
}

// rowDot is C[i,j] = A[i,:] . B[j,:].
func (c *compiler) rowDot(n *graph.Node, rows, cols, inner int) ([]phase, error) {
	a, b, out := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	d := n.In[1].DType()
	code := c.code
	c.need(0, inner*4)
	tasks, per := chunks(cols, max(8, 2*grain/inner))
	return []phase{{tasks, func(task, w int) {
		reg := floats(code.worker(w), 0, inner)
		x, y := a.f32(), out.f32()
		for j := task * per; j < min((task+1)*per, cols); j++ {
			r := row(b, d, j, inner, reg)
			for i := range rows {
				y[i*cols+j] = simd.Dot(x[i*inner:(i+1)*inner], r)
			}
		}
	}}}, nil
}
