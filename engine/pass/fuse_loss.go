package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// exponentials makes losses of linear logits take the exponentials of these where the matmul
// computes them.
func exponentials(f *graph.Func, can Fusion) (*graph.Func, error) {
	if !can.Exponentials || !slices.ContainsFunc(f.Nodes, linearLoss) {
		return f, nil
	}
	instead := make([]func(*rebuilder), len(f.Nodes))
	for i, n := range f.Nodes {
		if !linearLoss(n) {
			continue
		}
		// The scratch changes, which nobody reads.
		switch op := n.Op.(type) {
		case graph.LinearCrossEntropy:
			op.Exponentials = true
			instead[i] = func(r *rebuilder) { r.replace(n.Out[:2], r.b.Emit(op, r.all(n.In)...)) }
		case graph.LinearCrossEntropyGrad:
			op.Exponentials = true
			instead[i] = func(r *rebuilder) { r.replace(n.Out[:len(n.Out)-1], r.b.Emit(op, r.all(n.In)...)) }
		}
	}
	return rebuild(f, instead)
}

// linearLoss reports whether n is a loss of linear logits, or its gradient, that keeps logits.
func linearLoss(n *graph.Node) bool {
	switch op := n.Op.(type) {
	case graph.LinearCrossEntropy:
		return !op.Exponentials
	case graph.LinearCrossEntropyGrad:
		return !op.Exponentials
	}
	return false
}
