package compare

import "github.com/snug-ml/snug/engine/graph"

// unit is the unit roundoff of d: the largest relative error of one rounding.
func unit(d graph.DType) float64 {
	switch d {
	case graph.BF16:
		return 0x1p-8
	case graph.F16:
		return 0x1p-11
	}
	return 0x1p-24
}

// tiny is half the spacing of the subnormal numbers of d, which can be lost whatever the
// size of a number; bfloat16 has the exponents of float32.
func tiny(d graph.DType) float64 {
	if d == graph.F16 {
		return 0x1p-25
	}
	return 0
}

// roundings counts the roundings to the format of the result along the way.
func roundings(op graph.Op) int {
	switch op := op.(type) {
	case graph.Fused:
		return 1 + len(op.Body.Instrs)
	case graph.MatMul:
		if op.Body != nil {
			return 2 + len(op.Body.Instrs)
		}
	case graph.Pool2D:
		if op.Body != nil {
			return 1 + len(op.Body.Instrs)
		}
	case graph.Attention, graph.AttentionGrad, graph.LinearCrossEntropyGrad, graph.SelectiveScan, graph.SelectiveScanGrad:
		return 4 // of the values that are multiplied a second time
	case graph.LayerNormGrad:
		return 2 // before and after the addend
	}
	return 1
}

// terms is the length of the sums that lead to an element of the result v of n.
func terms(n *graph.Node, v *graph.Value) int {
	switch op := n.Op.(type) {
	case graph.MatMul:
		_, _, _, inner := op.Dims([]graph.Type{n.In[0].Type, n.In[1].Type})
		return inner
	case graph.Elementwise, graph.Fused, graph.Dropout:
		return 1
	}
	most := int64(v.Shape().Last())
	for _, in := range n.In {
		most = max(most, in.Shape().Elems()/max(1, v.Shape().Elems()), int64(in.Shape().Last()))
	}
	return int(most)
}

// along reports whether each row of the result v of n depends only on the same row of
// operand k.
func along(n *graph.Node, v *graph.Value, k int) bool {
	switch op := n.Op.(type) {
	case graph.Elementwise, graph.Fused, graph.Dropout, graph.Softmax, graph.SoftmaxGrad:
		return true
	case graph.LayerNorm, graph.CrossEntropyGrad:
		return k == 0
	case graph.LayerNormGrad:
		return v.Index == 0 && (k < 2 || k == 5)
	case graph.MatMul:
		return k == 0 && !op.TransA || k >= 2
	}
	return false
}

// linear reports whether the result of op is a sum of products in which its
// operands' absolute values bound every term.
func linear(op graph.Op) bool {
	switch op := op.(type) {
	case graph.MatMul:
		return op.Body == nil && op.MapA == (graph.Elementwise{}) && op.MapB == (graph.Elementwise{})
	case graph.Reduce:
		return op.Kind != graph.ReduceMax
	case graph.Elementwise:
		return op.Fn == graph.FnAdd || op.Fn == graph.FnMul
	case graph.EmbeddingGrad, graph.Combine, graph.SliceGrad, graph.Dispatch, graph.GroupedMatMul, graph.GroupedOuter, graph.GroupedSum:
		return true
	}
	return false
}

// innocent reports whether op is cleared as long as it agrees with its definition:
// operations that only move elements, whose results differ as their operands do, and
// optimizers, which divide gradients by their size, so that gradients that are nothing
// but rounding errors (of the keys' biases, say, which no softmax sees) count as much as
// others.
func innocent(op graph.Op) bool {
	switch op.(type) {
	case graph.Slice, graph.SliceGrad, graph.SliceWrite, graph.Concat, graph.Transpose, graph.Expand, graph.Embedding, graph.Gather, graph.Assign, graph.Optimizer:
		return true
	}
	return false
}

// statistic reports whether op keeps v only for its own gradient: the mean of a row that
// is nearly zero may differ by its whole size without harm, and its effect shows in the
// gradient.
func statistic(op graph.Op, v *graph.Value) bool {
	switch op.(type) {
	case graph.LayerNorm, graph.ChannelNorm, graph.Attention, graph.CrossEntropy, graph.LinearCrossEntropy:
		return v.Index > 0
	case graph.BatchStats:
		return true
	}
	return false
}
