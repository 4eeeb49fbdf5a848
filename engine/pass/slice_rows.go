package pass

import "github.com/snug-ml/snug/engine/graph"

// rows says how an operation is computed on parts of the rows of its operands. Parts are
// equal and consecutive: part p of a value has the elements p*n..(p+1)*n of its storage.
type rows struct {
	cut  []bool                  // the operands that are cut along dimension 0; the others are read whole
	sums []bool                  // the results that are sums over the rows: the parts' add up. The others are cut.
	op   func(part int) graph.Op // computes a part
}

// divides reports whether v can be cut into the given number of parts.
func divides(v *graph.Value, parts int) bool {
	s := v.Shape()
	return len(s) > 0 && s[0]%parts == 0
}

// portion returns the shape of one of the given number of parts.
func portion(s graph.Shape, parts int) graph.Shape {
	s = s.Clone()
	s[0] /= parts
	return s
}

// rowsOf says how n is computed in parts; nil: it cannot be, because a row of a result
// depends on several of an operand, or because it changes a state, which must happen
// once.
func rowsOf(n *graph.Node, parts int) *rows {
	r := &rows{cut: make([]bool, len(n.In)), sums: make([]bool, len(n.Out)), op: func(int) graph.Op { return n.Op }}
	if graph.HasEffect(n.Op, len(n.In)) || len(n.Out) == 0 || !r.rule(n, parts) {
		return nil
	}
	for i, v := range n.In {
		if r.cut[i] && !divides(v, parts) {
			return nil
		}
	}
	for i, v := range n.Out {
		if !r.sums[i] && !divides(v, parts) || r.sums[i] && v.DType() != graph.F32 {
			return nil
		}
	}
	return r
}

// of marks the operands that are cut.
func (r *rows) of(operands ...int) bool {
	for _, i := range operands {
		r.cut[i] = true
	}
	return true
}

// all cuts every operand.
func (r *rows) all() bool {
	for i := range r.cut {
		r.cut[i] = true
	}
	return true
}

// sum marks the results that are sums.
func (r *rows) sum(results ...int) bool {
	for _, i := range results {
		r.sums[i] = true
	}
	return true
}

// always sets an operation that is the same for every part.
func (r *rows) always(op graph.Op) { r.op = func(int) graph.Op { return op } }

// rule fills r in; false: n cannot be computed in parts.
func (r *rows) rule(n *graph.Node, parts int) bool {
	shape := n.Out[0].Shape()
	switch op := n.Op.(type) {
	case graph.Elementwise:
		op.Out = n.Out[0].DType()
		r.always(op)
		return r.broadcast(n, shape)
	case graph.Expand:
		if !divides(n.Out[0], parts) {
			return false
		}
		r.always(graph.Expand{Shape: portion(shape, parts)})
		return r.broadcast(n, shape)
	case graph.Reshape:
		if !divides(n.Out[0], parts) {
			return false
		}
		r.always(graph.Reshape{Shape: portion(shape, parts)})
		return r.all()
	case graph.Dropout:
		each := uint64(shape.Elems()) / uint64(parts)
		if each%4 != 0 {
			return false
		}
		r.op = func(p int) graph.Op {
			op := op
			op.First += uint64(p) * each
			return op
		}
		return r.of(0)
	case graph.Quantize, graph.Dequantize:
		return len(n.In[0].Shape()) > 1 && r.all()
	case graph.Detach, graph.Pool2D, graph.Pool2DGrad, graph.Relate, graph.RelateGrad:
		return r.all()
	case graph.Softmax, graph.SoftmaxGrad, graph.TopK, graph.Gather, graph.Scatter, graph.ArgMax:
		return len(n.In[0].Shape()) > 1 && r.all() // the last dimension is a row
	case graph.OneHot:
		return r.all()
	case graph.Transpose:
		return len(op.Perm) > 0 && op.Perm[0] == 0 && r.all()
	case graph.Slice:
		return op.Axis > 0 && r.all()
	case graph.SliceGrad:
		return op.Slice.Axis > 0 && r.all()
	case graph.Concat:
		return op.Axis > 0 && r.all()
	case graph.Reduce:
		if op.Has(0) {
			return op.Kind == graph.ReduceSum && r.all() && r.sum(0)
		}
		return r.all()
	case graph.MatMul:
		return r.matmul(n, op)
	case graph.Conv2D, graph.Conv2DGradInput:
		return r.of(0)
	case graph.Conv2DGradWeight:
		return r.of(0, 1) && r.sum(0)
	case graph.LayerNorm:
		return len(n.In[0].Shape()) > 1 && r.of(0)
	case graph.LayerNormGrad:
		if len(n.In[1].Shape()) < 2 {
			return false
		}
		if len(n.In) == 6 {
			r.of(5)
		}
		for i := range n.Out[1:] {
			r.sum(i + 1)
		}
		return r.of(0, 1, 3, 4)
	case graph.ChannelNorm:
		if op.Groups > 0 && op.Given {
			r.of(3, 4)
		}
		return (op.Groups > 0 || op.Given) && r.of(0)
	case graph.ChannelNormGrad:
		return op.Groups > 0 && r.of(0, 1, 3, 4) && r.sum(1, 2)
	case graph.Embedding:
		return r.of(1)
	case graph.Rotary:
		if op.Offset {
			r.of(2)
		}
		return r.of(0)
	case graph.Attention:
		return r.attention(op, 0)
	case graph.AttentionGrad:
		return r.of(0, 1, 2) && r.attention(graph.Attention(op), 3)
	case graph.SelectiveScan:
		return r.of(0, 1, 3, 4)
	case graph.SelectiveScanGrad:
		return r.of(0, 1, 2, 3, 5, 6) && r.sum(2, 5)
	}
	return false
}

// broadcast cuts the operands that are not broadcast along dimension 0.
func (r *rows) broadcast(n *graph.Node, shape graph.Shape) bool {
	for i, v := range n.In {
		s := v.Shape()
		r.cut[i] = len(s) > 0 && len(s) == len(shape) && s[0] == shape[0]
	}
	return true
}

// matmul: rows of a first operand that is not transposed, matrices of a batch, or, for
// the gradient of a weight, a sum over the rows of both.
func (r *rows) matmul(n *graph.Node, op graph.MatMul) bool {
	switch {
	case op.SumA || op.Accumulate || op.Body != nil:
		return false
	case len(n.In[0].Shape()) > 2:
		return r.of(0, 1)
	case !op.TransA:
		return r.of(0)
	case !op.TransB:
		return r.of(0, 1) && r.sum(0)
	}
	return false
}

// attention: sequences are independent. Which weights dropout keeps depends on their
// number in the whole batch, which cannot be passed to the operation.
func (r *rows) attention(op graph.Attention, first int) bool {
	lens, segments, rng := op.Optional()
	if rng >= 0 {
		return false
	}
	for i := range op.Arity() {
		r.of(first + i)
	}
	for _, i := range []int{lens, segments} {
		if i >= 0 {
			r.of(first + i)
		}
	}
	return true
}
