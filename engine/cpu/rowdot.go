package cpu

import (
	"cmp"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/simd"
)

// rowDotLimit is the maximum number of rows of A for which a matmul A B^T reads B in
// place: each element is a dot product, and packing B first would cost more than the
// matmul.
const rowDotLimit = 4

// rowDots reports whether a matmul of these extents is computed by dot products:
// generating text token by token consists of these.
func rowDots(op graph.MatMul, n *graph.Node, batch, rows int) bool {
	return batch == 1 && rows <= rowDotLimit && op.TransB && !op.TransA && !op.Accumulate && op.MapA == (graph.Elementwise{}) &&
		n.In[0].DType() == graph.F32 && n.Out[0].DType() == graph.F32 && n.In[1].DType().Float()
}

// rowDot is C[i,j] = A[i,:] . B[j,:], followed by the body of the matmul.
func (c *compiler) rowDot(n *graph.Node, op graph.MatMul, rows, cols, inner int) ([]phase, error) {
	a, b, out := c.ref(n.In[0]), c.ref(n.In[1]), c.ref(n.Out[0])
	d := n.In[1].DType()
	code := c.code
	need := alignUp(inner*4, 64)
	var ep *epilogue
	if op.Body != nil {
		var err error
		if ep, err = c.epilogue(n, op.Body, operandsOfBody(n), cmp.Or(op.Out, graph.F32), need); err != nil {
			return nil, err
		}
		need = ep.end
	}
	c.need(0, need)
	tasks, per := chunks(cols, max(16, 2*grain/inner))
	return []phase{{tasks, func(task, w int) {
		reg := floats(code.worker(w), 0, inner)
		x, y := a.f32(), out.f32()
		from, to := task*per, min((task+1)*per, cols)
		for i := range rows {
			part, xi := y[i*cols+from:i*cols+to], x[i*inner:(i+1)*inner]
			switch d {
			case graph.F32:
				simd.MatVec(part, b.f32()[from*inner:to*inner], xi)
			case graph.BF16:
				simd.MatVecBF16(part, b.u16()[from*inner:to*inner], xi)
			default:
				for j := from; j < to; j++ {
					part[j-from] = simd.Dot(row(b, d, j, inner, reg), xi)
				}
			}
		}
		if ep != nil {
			ep.forWorker(w).Tile(0, rows, from, to, &y[from], cols)
		}
	}}}, nil
}
