package pass

import "github.com/snug-ml/snug/engine/graph"

// normalizations makes of each batch normalization its statistics, which need a pass over
// memory of their own, and elementwise operations, which loops take in.
func normalizations(f *graph.Func, can Fusion) (*graph.Func, error) {
	if !can.Normalizations {
		return f, nil
	}
	return replaced(f, func(_ int, n *graph.Node) func(*rebuilder) {
		if !batchNorm(n) {
			return nil
		}
		return func(r *rebuilder) { apart(r, n, n.Op.(graph.ChannelNorm)) }
	})
}

// apart emits what stands for the batch normalization n.
func apart(r *rebuilder, n *graph.Node, op graph.ChannelNorm) {
	b, in := r.b, r.all(n.In)
	x, gamma, beta := in[0], in[1], in[2]
	stats := in[3:]
	if !op.Given {
		stats = b.Emit(graph.BatchStats{}, x)
		r.replace(n.Out[1:], stats)
	}
	mean, variance := stats[0], stats[1]
	scale := b.Mul(b.Emit(graph.Elementwise{Fn: graph.FnRsqrt}, b.AddC(variance, op.Eps))[0], gamma)
	from := b.Emit(graph.Elementwise{Fn: graph.FnSub, Out: graph.F32}, x, mean)
	r.replace(n.Out[:1], b.Emit(graph.Elementwise{Fn: graph.FnAdd, Out: x.DType()}, b.Mul(from[0], scale), beta))
}

// batchNorm reports whether n is a batch normalization.
func batchNorm(n *graph.Node) bool {
	op, ok := n.Op.(graph.ChannelNorm)
	return ok && op.Groups == 0
}
