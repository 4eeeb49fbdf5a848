package cuda

import (
	"github.com/snug-ml/snug/engine/graph"
)

// rowGroup is the suffix of the kernels for rows of n elements, and how many rows each block handles.
func rowGroup(n int) (suffix string, rows int) {
	switch {
	case n%4 != 0 || n > 4096:
		return "block", 1
	case n <= 256:
		return "w256", 8
	case n <= 1024:
		return "w1024", 8
	case n <= 2048:
		return "b2048", 1
	}
	return "b4096", 1
}

// runRows launches a kernel over rows of n elements; moved is its traffic.
func (l *lowering) runRows(kernel, formats string, rows, n int, moved int64, p *params) {
	group, per := rowGroup(n)
	lines := warps(n)
	if group != "block" { // four neighbors a lane
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
	dy, x := n.In[0], n.In[1]
	rows, width := x.Shape().Rows(), x.Shape().Last()
	formats, dyAt := l.gradFormats(x, dy)
	moved := traffic(dy, x, n.Out[0])
	if len(n.In) == 6 {
		moved += traffic(n.In[5])
	}
	// row returns the parameters of a kernel that computes dx.
	row := func() *params {
		p := new(params).ptr(dyAt).ptr(l.at(x)).ptr(l.at(n.In[2])).ptr(l.at(n.In[3])).ptr(l.at(n.In[4]))
		if len(n.In) == 6 {
			p.ptr(l.at(n.In[5]))
		} else {
			p.null()
		}
		return p.ptr(l.at(n.Out[0]))
	}
	if group, atOnce := sumsGroup(width); group != "" {
		// Each block takes as many rows as keep all multiprocessors busy.
		const blocks = 4 // of a multiprocessor
		size := ceil(ceil(rows, blocks*l.sms), atOnce) * atOnce
		s, lines := l.normSums(n, op, ceil(rows, size)), ceil(width, 128)
		l.run(op.Name()+"_"+group+formats, s.parts, 256, s.pair(row(), s.gammas, s.betas).u32(rows, width, size)).
			does("row", rows).does("line", rows*lines).does("part", s.parts).does("end", s.parts*lines).moves(moved).overRows()
		s.finish(width)
		return
	}
	const most = 256 // rows of a part
	size := ceil(rows, min(ceil(rows, most), 65535))
	// Compute the sums first, as dx may overwrite dy.
	s := l.normSums(n, op, ceil(rows, size))
	p := s.pair(new(params).ptr(dyAt).ptr(l.at(x)).ptr(l.at(n.In[3])).ptr(l.at(n.In[4])), s.gammas, s.betas)
	l.runGrid("layer_norm_columns"+formats, [3]int{ceil(width, 32), s.parts, 1}, 256, p.u32(rows, width, size)).
		does("block", warps(width)*s.parts).does("line", warps(width)*rows).moves(traffic(dy, x)).overRows()
	s.finish(width)
	l.run(op.Name()+"_block"+formats, rows, 256, row().u32(rows, width)).does("row", rows).does("line", rows*warps(width)).moves(moved).overRows()
}

// sumsGroup is the suffix of the kernels for the gradient of rows of n elements that add up the columns as well,
// and how many rows a block has at a time; "" if there is none.
func sumsGroup(n int) (suffix string, rows int) {
	switch {
	case n%4 != 0 || n > 4096:
		return "", 0
	case n <= 512:
		return "w512", 8
	case n <= 1024:
		return "b1024", 1
	case n <= 2048:
		return "b2048", 1
	}
	return "b4096", 1
}

// normSums are the gradients of a norm's weights, summed up over parts of the rows.
type normSums struct {
	*lowering
	parts         int
	rms           bool // there is no beta
	dgamma, dbeta address
	gammas, betas address // of the parts
}

func (l *lowering) normSums(n *graph.Node, op graph.LayerNormGrad, parts int) *normSums {
	s := &normSums{lowering: l, parts: parts, rms: op.RMS, dgamma: l.at(n.Out[1])}
	if !s.rms {
		s.dbeta = l.at(n.Out[2])
	}
	s.gammas, s.betas = s.dgamma, s.dbeta
	if parts > 1 {
		size := 4 * int64(parts) * n.Out[1].Shape().Elems()
		s.gammas, s.betas = l.take(size), l.take(size)
	}
	return s
}

// pair appends addresses for gamma and beta.
func (s *normSums) pair(p *params, gamma, beta address) *params {
	if p.ptr(gamma); s.rms {
		return p.null()
	}
	return p.ptr(beta)
}

// finish adds up the parts.
func (s *normSums) finish(width int) {
	if s.parts == 1 {
		return
	}
	n := 2
	if s.rms {
		n = 1
	}
	p := s.pair(s.pair(new(params), s.gammas, s.betas), s.dgamma, s.dbeta)
	s.runGrid("layer_norm_sums", [3]int{ceil(width, 32), n, 1}, 1024, p.u32(s.parts, width)).
		does("block", n*warps(width)).does("line", n*warps(width)*s.parts)
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
