package cuda

import (
	"github.com/snug-ml/snug/engine/graph"
)

// rowGroup is the suffix of the kernels for rows of n elements, and how many rows each block handles.
func rowGroup(n int) (suffix string, rows int) {
	switch {
	case n%4 == 0 && n <= 256:
		return "w256", 8
	case n%4 == 0 && n <= 1024:
		return "w1024", 8
	}
	return "block", 1
}

// runRows launches a kernel over rows of n elements; moved is its traffic.
func (l *lowering) runRows(kernel, formats string, rows, n int, moved int64, p *params) {
	group, per := rowGroup(n)
	lines := warps(n)
	if per > 1 { // four neighbors a lane
		lines = ceil(n, 128)
	}
	l.run(kernel+"_"+group+formats, ceil(rows, per), 256, p).does("row", rows).does("line", rows*lines).moves(moved).overRows()
}

func (l *lowering) layerNorm(n *graph.Node, op graph.LayerNorm) {
	x := n.In[0]
	rows, width := x.Shape().Rows(), x.Shape().Last()
	p := new(params).ptr(l.at(x)).ptr(l.at(n.In[1]))
	if op.RMS {
		p.null()
	} else {
		p.ptr(l.at(n.In[2]))
	}
	p.ptr(l.at(n.Out[0])).ptr(l.at(n.Out[1])).ptr(l.at(n.Out[2])).u32(rows, width).f32(op.Eps)
	l.runRows(op.Name(), "_"+x.DType().String(), rows, width, traffic(x, n.Out[0]), p)
}

func (l *lowering) layerNormGrad(n *graph.Node, op graph.LayerNormGrad) {
	dy, x, gamma, mean, rstd := n.In[0], n.In[1], l.at(n.In[2]), l.at(n.In[3]), l.at(n.In[4])
	rows, width := x.Shape().Rows(), x.Shape().Last()
	formats, dyAt := l.gradFormats(x, dy)

	// Compute the sums first, as dx may overwrite dy.
	const most = 256 // rows of a part
	parts := min(ceil(rows, most), 65535)
	size := ceil(rows, parts)
	parts = ceil(rows, size)
	dgamma, dbeta := l.at(n.Out[1]), address{}
	if !op.RMS {
		dbeta = l.at(n.Out[2])
	}
	toGamma, toBeta := dgamma, dbeta
	if parts > 1 {
		toGamma = l.take(4 * int64(parts) * int64(width))
		toBeta = l.take(4 * int64(parts) * int64(width))
	}
	p := new(params).ptr(dyAt).ptr(l.at(x)).ptr(mean).ptr(rstd).ptr(toGamma)
	if op.RMS {
		p.null()
	} else {
		p.ptr(toBeta)
	}
	l.runGrid("layer_norm_columns"+formats, [3]int{ceil(width, 32), parts, 1}, 256, p.u32(rows, width, size)).
		does("block", warps(width)*parts).does("line", warps(width)*rows).moves(traffic(dy, x)).overRows()
	if parts > 1 {
		l.reduceColumns("sum_", graph.F32, toGamma, dgamma, 1, parts, width, 1)
		if !op.RMS {
			l.reduceColumns("sum_", graph.F32, toBeta, dbeta, 1, parts, width, 1)
		}
	}

	p = new(params).ptr(dyAt).ptr(l.at(x)).ptr(gamma).ptr(mean).ptr(rstd)
	if len(n.In) == 6 {
		p.ptr(l.at(n.In[5]))
	} else {
		p.null()
	}
	moved := traffic(dy, x, n.Out[0])
	if len(n.In) == 6 {
		moved += traffic(n.In[5])
	}
	l.runRows(op.Name(), formats, rows, width, moved, p.ptr(l.at(n.Out[0])).u32(rows, width))
}

// gradFormats is the suffix of the kernels for the formats of x and dy, and the address of dy in its format:
// there are kernels for equal formats and for a float32 dy, to which others are widened.
func (l *lowering) gradFormats(x, dy *graph.Value) (suffix string, at address) {
	d, at := dy.DType(), l.at(dy)
	if d != x.DType() && d != graph.F32 {
		d, at = graph.F32, l.widened(dy)
	}
	return "_" + x.DType().String() + "_" + d.String(), at
}

// widened is a float32 copy of a 16-bit value, which float32 holds exactly.
func (l *lowering) widened(v *graph.Value) address {
	to := v.Type.With(graph.F32)
	at := l.take(to.Bytes())
	s := v.Shape().Strides(v.Shape())
	l.copyLoop(v.Shape(), strided{dtype: v.DType(), at: l.at(v), stride: s}, strided{dtype: graph.F32, at: at, stride: s})
	return at
}

func (l *lowering) softmax(n *graph.Node) {
	x := n.In[0]
	rows, width := x.Shape().Rows(), x.Shape().Last()
	l.runRows("softmax", "", rows, width, traffic(x, n.Out[0]), new(params).ptr(l.at(x)).ptr(l.at(n.Out[0])).u32(rows, width))
}

func (l *lowering) softmaxGrad(n *graph.Node) {
	y := n.In[0]
	rows, width := y.Shape().Rows(), y.Shape().Last()
	l.runRows("softmax_grad", "", rows, width, traffic(y, n.In[1], n.Out[0]), new(params).ptr(l.at(y)).ptr(l.at(n.In[1])).ptr(l.at(n.Out[0])).u32(rows, width))
}
