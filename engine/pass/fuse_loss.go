package pass

import "github.com/snug-ml/snug/engine/graph"

// exponentials makes losses of linear logits take the exponentials of these where the matmul
// computes them.
func exponentials(f *graph.Func, can Fusion) (*graph.Func, error) {
	if !can.Exponentials {
		return f, nil
	}
	return replaced(f, func(_ int, n *graph.Node) func(*rebuilder) {
		// The scratch changes, which nobody reads.
		switch op := n.Op.(type) {
		case graph.LinearCrossEntropy:
			if op.Exponentials {
				return nil
			}
			op.Exponentials = true
			return func(r *rebuilder) { r.replace(n.Out[:2], r.b.Emit(op, r.all(n.In)...)) }
		case graph.LinearCrossEntropyGrad:
			if op.Exponentials {
				return nil
			}
			op.Exponentials = true
			return func(r *rebuilder) { r.replace(n.Out[:len(n.Out)-1], r.b.Emit(op, r.all(n.In)...)) }
		}
		return nil
	})
}
