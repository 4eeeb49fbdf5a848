package pass

import (
	"github.com/snug-ml/snug/engine/graph"
)

// leastRow is the shortest row that is worth a scale of its own.
const leastRow = 8

// compress keeps the arguments of GELU and SiLU for the backward half in 8 bits, with one
// scale per row (activation compressed training: Chen et al. 2021, arXiv:2104.14129; here
// rounded to nearest). The forward half computes with the arguments themselves. The backward
// half decodes them once, and recomputes what the forward half made of them: the function's
// result, and that times a gate, which a matmul's gradient reads.
func compress(u *Unit) error {
	if !u.Compress || u.Loss == "" {
		return nil
	}
	arguments, made := compressible(u.F)
	if len(arguments) == 0 {
		return nil
	}
	codes := map[int]*graph.Value{} // by the argument's ID
	type key struct{ id, block int }
	decoded := map[key]*graph.Value{} // serve the backward half of one block
	f, err := u.F.Rewrite(func(b *graph.Builder, n *graph.Node, in []*graph.Value) []*graph.Value {
		if !n.Backward {
			out := b.Again(n, in)
			for i, v := range n.Out {
				if arguments[v.ID] {
					codes[v.ID] = b.Quantize(out[i])
				}
			}
			return out
		}
		var again func(v *graph.Value) *graph.Value
		again = func(v *graph.Value) *graph.Value {
			if !arguments[v.ID] && !made[v.ID] {
				return b.Now(v)
			}
			k := key{v.ID, n.Block}
			if decoded[k] == nil {
				args := []*graph.Value{codes[v.ID]}
				op := graph.Op(graph.Dequantize{To: v.DType()})
				if made[v.ID] {
					op, args = v.Node.Op, make([]*graph.Value, len(v.Node.In))
					for i, w := range v.Node.In {
						args[i] = again(w)
					}
				}
				b.At(v.Node, func() {
					b.InBackward(func() { b.AsClone(func() { decoded[k] = b.Emit(op, args...)[0] }) })
				})
			}
			return decoded[k]
		}
		for i, v := range n.In {
			in[i] = again(v)
		}
		return nil
	})
	if err == nil {
		u.F = f
	}
	return err
}

// compressible returns the values, by ID, that are kept in 8 bits, and those computed from
// them. If anything in the backward half other than elementwise functions reads a value, it
// would have to be kept uncompressed as well as in codes.
func compressible(f *graph.Func) (arguments, made map[int]bool) {
	arguments, made = map[int]bool{}, map[int]bool{}
	saved := map[int][]*graph.Node{} // readers in the backward half
	for _, n := range f.Nodes {
		if n.Backward {
			for _, v := range n.In {
				saved[v.ID] = append(saved[v.ID], n)
			}
		}
	}
	for _, n := range f.Nodes {
		if n.Backward {
			continue
		}
		if e, ok := n.Op.(graph.Elementwise); ok && curved(e.Fn) {
			x := n.In[0]
			if x.Node != nil && !x.Node.Backward && x.DType().Float() && len(x.Shape()) > 0 && x.Shape().Last() >= leastRow &&
				len(saved[x.ID]) > 0 && onlyElementwise(saved[x.ID]) {
				arguments[x.ID] = true
			}
		}
	}
	for _, n := range f.Nodes {
		if !n.Backward && follows(n, arguments, made) {
			made[n.Out[0].ID] = true
		}
	}
	return arguments, made
}

// curved reports whether the gradient of a function of one argument reads the argument.
func curved(fn graph.Fn) bool {
	return fn == graph.FnGELU || fn == graph.FnGELUTanh || fn == graph.FnSiLU
}

// follows reports whether n is such a function of a compressed argument, or a product with its
// result.
func follows(n *graph.Node, arguments, made map[int]bool) bool {
	e, ok := n.Op.(graph.Elementwise)
	switch {
	case graph.IsView(n.Op):
		return made[n.In[0].ID]
	case !ok:
		return false
	case curved(e.Fn):
		return arguments[n.In[0].ID]
	}
	return e.Fn == graph.FnMul && (made[n.In[0].ID] || made[n.In[1].ID])
}

func onlyElementwise(nodes []*graph.Node) bool {
	for _, n := range nodes {
		if _, ok := n.Op.(graph.Elementwise); !ok {
			return false
		}
	}
	return true
}
