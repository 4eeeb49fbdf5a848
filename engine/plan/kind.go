package plan

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
)

// Kind is the purpose of a temporary.
type Kind uint8

// The kinds of temporaries, in order of printing.
const (
	LowWeights Kind = iota // 16-bit copies of weights
	Gradients              // gradients of weights
	Saved                  // activations kept for the backward half
	Rebuilt                // activations that are recomputed
	Logits                 // logits, and what the loss keeps
	Staged                 // offloaded states of the optimizer
	Other                  // short-lived activations and gradients
	kindCount  = iota
)

var kindNames = [kindCount]string{"low-precision copies of weights", "gradients", "activations saved for backward",
	"activations computed again", "logits and loss", "offloaded states while they are updated", "other temporaries"}

var kindNotes = [kindCount]string{Gradients: "alive at the peak", Saved: "alive at the peak"}

func (k Kind) String() string { return kindNames[k] }

// MarshalText returns the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// kinds classifies the temporaries of one function.
type kinds struct {
	gradient, saved, logits []bool // indexed by the ID of the storage's root
}

// root returns the value whose storage v uses.
func root(v *graph.Value) *graph.Value {
	for v.Node != nil && graph.IsView(v.Node.Op) {
		v = v.Node.In[0]
	}
	return v
}

func classify(f *graph.Func) kinds {
	n := f.NumValues()
	k := kinds{make([]bool, n), make([]bool, n), make([]bool, n)}
	for _, n := range f.Nodes {
		switch op := n.Op.(type) {
		case graph.Optimizer:
			k.gradient[root(n.In[1]).ID] = true
		case graph.GlobalNorm:
			for _, v := range n.In {
				k.gradient[root(v).ID] = true
			}
		case graph.Assign:
			if s := n.In[0].State; op.Add && s != nil && s.Role == graph.Gradient {
				k.gradient[root(n.In[1]).ID] = true
			}
		case graph.CrossEntropy:
			k.logits[root(n.In[0]).ID] = true
			for _, v := range n.Out {
				k.logits[v.ID] = true
			}
		case graph.CrossEntropyGrad:
			k.logits[n.Out[0].ID] = true
		case graph.LinearCrossEntropy:
			for _, v := range n.Out {
				k.logits[v.ID] = true
			}
		case graph.LinearCrossEntropyGrad:
			k.logits[n.Out[0].ID] = true
			k.logits[n.Out[len(n.Out)-1].ID] = true
		}
		if n.Backward {
			for _, v := range n.In {
				if r := root(v); r.Node != nil && !r.Node.Backward {
					k.saved[r.ID] = true
				}
			}
		}
	}
	return k
}

func (k kinds) of(v *graph.Value) Kind {
	v = root(v)
	switch {
	case fetchedActivation(v):
		return Saved
	case graph.Staged(v):
		return Staged
	case lowWeight(v):
		return LowWeights
	case k.gradient[v.ID]:
		return Gradients
	case k.logits[v.ID]:
		return Logits
	case v.Node != nil && v.Node.Clone:
		return Rebuilt
	case k.saved[v.ID]:
		return Saved
	}
	return Other
}

// fetchedActivation reports whether v is an activation that was fetched from the host's memory.
func fetchedActivation(v *graph.Value) bool {
	if v.Node == nil {
		return false
	}
	_, ok := v.Node.Op.(graph.Fetch)
	return ok && v.Node.In[0].State.Role == graph.Activation
}

// lowWeight reports whether v is a 16-bit copy of a weight, made from nothing else.
func lowWeight(v *graph.Value) bool {
	if v.Node == nil || !v.DType().Half() || len(v.Node.In) == 0 {
		return false
	}
	for _, w := range v.Node.In {
		s := root(w).State
		if s == nil || (s.Role != graph.Weight && s.Role != graph.Frozen) {
			return false
		}
	}
	return true
}

// label returns the operation of n with its layer.
func label(n *graph.Node) string {
	if n.Layer == "" {
		return n.Op.Name()
	}
	return n.Layer + "/" + n.Op.Name()
}

// describe names the operation that made v: for a fused one, the instruction, and for one with several
// results, which of them.
func describe(v *graph.Value) string {
	if v.Name != "" {
		return v.Name
	}
	name := v.Node.Op.Name()
	if op, ok := v.Node.Op.(graph.MatMul); ok && op.SumA && v.Index == len(v.Node.Out)-1 {
		return name + "+sums"
	}
	if b := graph.BodyOf(v.Node.Op); b != nil {
		if k := b.Results[v.Index] - b.Inputs; k >= 0 {
			name += "+" + b.Instrs[k].Op.Name()
		}
		return name
	}
	if v.Index > 0 {
		return fmt.Sprintf("%s (result %d)", name, v.Index)
	}
	return name
}
