package engine

import "github.com/snug-ml/snug/engine/graph"

// Rule is how an optimizer makes an update of a gradient.
type Rule string

// The rules.
const (
	AdamW     Rule = "adamw"
	AdamW8bit Rule = "adamw8bit" // AdamW whose moments have 8 bits
	Lion      Rule = "lion"
)

// Least8bit is the number of elements from which a weight has moments in 8 bits;
// smaller ones have 32, as bitsandbytes has it.
const Least8bit = 4096

// Optimizer is a rule with global-norm clipping.
type Optimizer struct {
	// Rule is empty for AdamW.
	Rule                           Rule
	Beta1, Beta2, Eps, WeightDecay float64
	// MaxGradNorm is the norm that gradients are clipped to; 0 is no clipping.
	MaxGradNorm float64
	// GroupLR multiplies the learning rate of the weights of a group.
	GroupLR map[string]float64
}

// scalars are what the steps of all weights have in common.
type scalars struct{ lr, gscale, now, ok *graph.Value }

// step emits the rule's step for one weight. zero says that the gradient is a state,
// to be cleared.
func (o *Optimizer) step(b *graph.Builder, w, grad *graph.Value, zero bool, c scalars) {
	s := w.State
	decay, rate := 0.0, 1.0
	if s.Decay {
		decay = o.WeightDecay
	}
	if f, ok := o.GroupLR[s.Group]; ok {
		rate = f
	}
	moment := func(prefix string, t graph.Type) *graph.Value { return companion(b, s, prefix, t, graph.Moment) }
	switch {
	case o.Rule == Lion:
		op := graph.Lion{Beta1: o.Beta1, Beta2: o.Beta2, WeightDecay: decay, LRScale: rate, ZeroGrad: zero}
		b.Emit(op, w, grad, moment(Moment1, s.Type), c.lr, c.gscale, c.ok)
	case o.Rule == AdamW8bit && s.Type.Shape.Elems() >= Least8bit:
		op := graph.AdamW8bit{Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, WeightDecay: decay, LRScale: rate, ZeroGrad: zero}
		codes, scales := graph.MomentTypes(s.Type)
		b.Emit(op, w, grad, moment(Moment1, codes), moment(Moment2, codes), moment(Scale1, scales), moment(Scale2, scales), c.lr, c.gscale, c.now, c.ok)
	default:
		op := graph.AdamW{Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, WeightDecay: decay, LRScale: rate, ZeroGrad: zero}
		b.Emit(op, w, grad, moment(Moment1, s.Type), moment(Moment2, s.Type), c.lr, c.gscale, c.now, c.ok)
	}
}
