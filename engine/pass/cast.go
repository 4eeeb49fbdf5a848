package pass

import "github.com/snug-ml/snug/engine/graph"

// cast rewrites the function for mixed precision (Micikevicius et al. 2018): matmuls and
// the values between them are stored in u.ComputeDType; weights, their gradients,
// statistics, losses and everything that sums over many elements stay float32. Which
// operand may be 16-bit is each operation's own rule ([graph.AutocastRule]).
func cast(u *Unit) error {
	if !u.ComputeDType.Half() {
		return nil
	}
	type key struct {
		id int
		d  graph.DType
	}
	casts := map[key]*graph.Value{}
	convert := func(b *graph.Builder, v *graph.Value, d graph.DType) *graph.Value {
		if v.DType() == d || !v.DType().Float() {
			return v
		}
		k := key{v.ID, d}
		if casts[k] == nil {
			casts[k] = b.Cast(v, d)
		}
		return casts[k]
	}
	f, err := u.F.Rewrite(func(b *graph.Builder, n *graph.Node, in []*graph.Value) []*graph.Value {
		types := make([]graph.Type, len(in))
		for i, v := range in {
			types[i] = v.Type
		}
		rule, ok := n.Op.(graph.AutocastRule)
		if !ok {
			for i, v := range in {
				if v.DType().Half() && !keptGradient(n, i) {
					in[i] = convert(b, v, graph.F32)
				}
			}
			return nil
		}
		want, cast := rule.Autocast(types, u.ComputeDType)
		for i, d := range want {
			if d != graph.Invalid && !keptGradient(n, i) {
				in[i] = convert(b, in[i], d)
			}
		}
		return b.Emit(cast, in...)
	})
	if err != nil {
		return err
	}
	// A result keeps its declared format: the host reads it.
	b := graph.Extend(f)
	for i, o := range u.F.Outputs {
		f.Outputs[i].Value = b.Cast(f.Outputs[i].Value, o.Value.DType())
	}
	u.F = f
	return nil
}

// keptGradient reports whether operand i of n is a gradient that was rounded for storage,
// which an optimizer reads as it is.
func keptGradient(n *graph.Node, i int) bool {
	switch n.Op.(type) {
	case graph.GlobalNorm:
		return n.In[i].DType() == graph.BF16
	case graph.Optimizer:
		return i == 1 && n.In[i].DType() == graph.BF16
	}
	return false
}
