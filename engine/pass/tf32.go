package pass

import "github.com/snug-ml/snug/engine/graph"

// tf32 makes the matmuls of float32 factors round them to TF32, in both halves of the
// function alike. Convolutions and attention stay as they are.
func tf32(u *Unit) error {
	if !u.TF32 {
		return nil
	}
	f, err := u.F.Rewrite(func(b *graph.Builder, n *graph.Node, in []*graph.Value) []*graph.Value {
		rule, ok := n.Op.(graph.TF32Rule)
		if !ok || in[0].DType() != graph.F32 && in[1].DType() != graph.F32 {
			return nil
		}
		return b.Emit(rule.WithTF32(), in...)
	})
	if err != nil {
		return err
	}
	u.F = f
	return nil
}
