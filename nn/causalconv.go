package nn

import "github.com/snug-ml/snug/engine/graph"

// CausalConv is torch.nn.Conv1d over time with all its padding at the beginning: step t
// of the result covers steps t-kernel+1 to t of x [B, T, C]. Weights "weight" [out, C,
// kernel] and "bias" [out] in scope name.
func CausalConv(b *graph.Builder, name string, x *graph.Value, out, kernel int, init graph.Init) (y *graph.Value) {
	b.Scope(name, func() {
		w := b.Param("weight", init, out, x.Shape().Last(), kernel)
		y = b.Conv1D(x, w, b.Param("bias", graph.Zeros(), out), 1, 1, kernel-1, 0, 1)
	})
	return y
}
