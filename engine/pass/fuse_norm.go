package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// normalizations makes of each batch normalization its statistics, which need a pass over
// memory of their own, and elementwise operations, which loops take in.
func normalizations(f *graph.Func, can Fusion) (*graph.Func, error) {
	if !can.Normalizations || !slices.ContainsFunc(f.Nodes, batchNorm) {
		return f, nil
	}
	instead := make([]func(*rebuilder), len(f.Nodes))
	for i, n := range f.Nodes {
		if !batchNorm(n) {
			continue
		}
		op := n.Op.(graph.ChannelNorm)
		instead[i] = func(r *rebuilder) {
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
	}
	return rebuild(f, instead)
}

// batchNorm reports whether n is a batch normalization.
func batchNorm(n *graph.Node) bool {
	op, ok := n.Op.(graph.ChannelNorm)
	return ok && op.Groups == 0
}
