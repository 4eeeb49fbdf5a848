package pass

import (
	"slices"

	"github.com/snug-ml/snug/engine/graph"
)

// Rounded are the weights of a training step that are also kept in the 16 bits that matmuls read: the optimizer's step,
// which has the weight at hand, rounds it once an update, so that no micro-batch does. The functions of a program share
// one, those with a backward half first: what they read is kept, and the others read it too.
type Rounded struct {
	// Weights are the rounded ones, in order of their first use.
	Weights []*graph.State
	states  map[string]*graph.State // by name
}

// RoundedName is the name of the state that holds a weight in 16 bits.
func RoundedName(weight string) string { return "rounded." + weight }

// State returns the state with a weight in 16 bits, nil if there is none.
func (r *Rounded) State(weight string) *graph.State { return r.states[weight] }

// add makes the state for a weight in d; nil if there is one in another format.
func (r *Rounded) add(w *graph.State, d graph.DType) *graph.State {
	if r.states[w.Name] != nil {
		return nil
	}
	if r.states == nil {
		r.states = map[string]*graph.State{}
	}
	s := &graph.State{Name: RoundedName(w.Name), Type: w.Type.With(d), Role: graph.Rounded}
	r.states[w.Name] = s
	r.Weights = append(r.Weights, w)
	return s
}

// round replaces casts of weights by the states that hold the results, which the optimizer's steps then write.
func round(u *Unit) error {
	if u.Rounded == nil {
		return nil
	}
	f, err := u.F.Rewrite(func(b *graph.Builder, n *graph.Node, in []*graph.Value) []*graph.Value {
		switch op := n.Op.(type) {
		case graph.Elementwise:
			if s := u.castOfWeight(n, op); s != nil {
				return []*graph.Value{b.State(s)}
			}
		case graph.AdamW:
			if s := u.Rounded.State(in[0].Name); s != nil && in[0].State != nil {
				at := 2 + op.States()
				op.Rounded = s.Type.DType
				out := b.Emit(op, slices.Insert(slices.Clone(in), at, b.State(s))...)
				return slices.Concat(out[:at-1], out[at:])
			}
		}
		return nil
	})
	if err == nil {
		u.F = f
	}
	return err
}

// castOfWeight returns the state that holds the result of n, if that is a weight in 16 bits.
func (u *Unit) castOfWeight(n *graph.Node, op graph.Elementwise) *graph.State {
	w := n.In[0].State
	if op.Fn != graph.FnCopy || !n.Out[0].DType().Half() || w == nil || w.Of != nil || w.Type.DType != graph.F32 ||
		w.Role != graph.Weight && w.Role != graph.Frozen {
		return nil
	}
	d := n.Out[0].DType()
	if s := u.Rounded.State(w.Name); s != nil && s.Type.DType == d {
		return s
	}
	if u.Loss == "" {
		return nil
	}
	return u.Rounded.add(w, d)
}
