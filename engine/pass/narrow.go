package pass

import "github.com/snug-ml/snug/engine/graph"

// narrow stores the weights that u.Narrow selects only in the formats that it gives. Operations
// that can read these formats do so (matmuls, tables and elementwise functions read 16 bits,
// matmuls read quantized formats); for others the weights are converted. What is computed from
// them keeps its format, and so do their gradients.
func narrow(u *Unit) error {
	if u.Narrow == nil {
		return nil
	}
	stored := map[*graph.Value]bool{}
	for _, v := range u.F.States {
		if d := u.Narrow(v.State); v.DType() == graph.F32 && d != graph.F32 {
			s := *v.State
			s.Type = s.Type.With(d)
			v.State, v.Type = &s, s.Type
			stored[v] = true
		}
	}
	if len(stored) == 0 {
		return nil
	}
	type key struct {
		v        *graph.Value
		backward bool
	}
	widened := map[key]*graph.Value{}
	now := map[*graph.Value]*graph.Value{}
	f, err := u.F.Rewrite(func(b *graph.Builder, n *graph.Node, in []*graph.Value) []*graph.Value {
		op := n.Op
		for i, v := range in {
			if !stored[v] {
				continue
			}
			reads, as := reader(op, i, v.DType(), n.Out[0].DType())
			if reads {
				op = as
				continue
			}
			k := key{v, n.Backward}
			if widened[k] == nil {
				widened[k] = widen(b, v)
			}
			in[i] = widened[k]
		}
		out := b.Emit(op, in...)
		for i, v := range n.Out {
			now[v] = out[i]
		}
		if graph.IsView(op) && stored[in[0]] {
			stored[out[0]] = true
		}
		return out
	})
	if err != nil {
		return err
	}
	for i, g := range u.grads {
		if now[g] != nil {
			u.grads[i] = now[g]
		}
	}
	u.F = f
	return nil
}

// widen returns a weight in float32.
func widen(b *graph.Builder, v *graph.Value) *graph.Value {
	if v.DType().Quantized() {
		return b.Dequantize(v)
	}
	return b.Cast(v, graph.F32)
}

// reader reports whether op can read a weight stored as d as its operand i, and returns
// the operation that then computes results of format out.
func reader(op graph.Op, i int, d, out graph.DType) (bool, graph.Op) {
	if d.Quantized() {
		_, ok := op.(graph.MatMul)
		return ok && i == 1, op
	}
	switch op := op.(type) {
	case graph.Elementwise:
		op.Out = out
		return true, op
	case graph.Embedding:
		op.Out = out
		return i == 0, op
	case graph.MatMul, graph.LinearCrossEntropy, graph.LinearCrossEntropyGrad, graph.GroupedMatMul, graph.Conv2D, graph.Conv2DGradInput:
		return i == 1, op
	}
	return graph.IsView(op), op
}
