package engine

import (
	"cmp"
	"errors"

	"github.com/snug-ml/snug/engine/graph"
)

// Rule is how an optimizer computes an update from a gradient.
type Rule string

// The rules.
const (
	AdamW     Rule = "adamw"
	AdamW8bit Rule = "adamw8bit" // AdamW whose moments have 8 bits
	Lion      Rule = "lion"
	Adafactor Rule = "adafactor" // second moments of matrices only by rows and columns
	Muon      Rule = "muon"      // steps of matrices are orthogonal; other weights use AdamW
)

// The constants of Adafactor are its authors', without a first moment and with the
// learning rate as configured.
const (
	adafactorDecay, adafactorClip = 0.8, 1
	// AdafactorEps is added to each square: a mean of squares is never smaller.
	AdafactorEps = 1e-30
)

// muonMomentum is the value of Muon's authors.
const muonMomentum = 0.95

// ClipNorm is the norm by which gradients are clipped.
type ClipNorm string

// The norms.
const (
	// ClipExact, or empty, is that of all gradients, which are all kept until it is known.
	ClipExact ClipNorm = "exact"
	// ClipTwoPasses is the same norm, found in a backward half of its own: a gradient is gone once its
	// norm is known, and computed again when the optimizer needs it. A step with several
	// micro-batches has the sums of gradients anyway, and ClipExact.
	ClipTwoPasses ClipNorm = "two_passes"
	// ClipPrevious is that of the update before, or of the weight's own gradient where that is
	// larger: each weight is updated as soon as its gradient is final. Not with [LossScaling], by
	// which all weights or none are updated. With several micro-batches it is ClipExact too.
	ClipPrevious ClipNorm = "previous"
)

// Least8bit is the number of elements from which a weight has moments in 8 bits;
// smaller ones have 32, as bitsandbytes has it.
const Least8bit = 4096

// Optimizer is a rule with global-norm clipping.
type Optimizer struct {
	// Rule is the optimizer's rule; empty means AdamW.
	Rule                           Rule
	Beta1, Beta2, Eps, WeightDecay float64
	// MaxGradNorm is the norm that gradients are clipped to; 0 means no clipping.
	MaxGradNorm float64
	// Clip is which norm that is.
	Clip ClipNorm
	// Round is how weights are kept; of its streams each has its own. Those in 16 bits
	// are the weights that decay: matrices, tables, kernels of convolutions.
	Round graph.Rounding
	// Gradients is the format of the gradients of matrices, tables and kernels of
	// convolutions while they are kept: as sums over micro-batches, or until the norm of all is
	// known. It is F32, or BF16.
	Gradients graph.DType
	// Offload keeps the states of large weights in the host's memory, as far as a step
	// works on them element by element; see [Offloadable].
	Offload bool
	// GroupLR multiplies the learning rate of a group's weights.
	GroupLR map[string]float64
}

// LeastOffloaded is the number of elements from which a weight's states are kept in the
// host's memory: smaller ones need next to nothing, and copying them is dominated by the
// overhead of a copy.
const LeastOffloaded = 16 << 10

// Offloadable returns why the states of a rule cannot be offloaded; nil: they can.
func (r Rule) Offloadable() error {
	switch r {
	case Adafactor:
		return errors.New("adafactor keeps means of rows and columns, which are small, and needs them whole")
	case Muon:
		return errors.New("muon's steps are products of whole matrices of its momentum")
	}
	return nil
}

// narrow returns which weights are kept in 16 bits, nil for none.
func (o *Optimizer) narrow() func(s *graph.State) bool {
	if o.Round.Mode == graph.Exact {
		return nil
	}
	return func(s *graph.State) bool { return s.Role == graph.Weight && s.Decay && len(s.Type.Shape) > 1 }
}

// LeastBytes is the least memory of a trained weight and of the states that the rule
// keeps for it, in bytes per element.
func (o *Optimizer) LeastBytes() float64 {
	moments := map[Rule]float64{Lion: 4, AdamW8bit: 2, Adafactor: 0, Muon: 4}
	kept, ok := moments[o.Rule]
	if !ok {
		kept = 8
	}
	if o.Round.Mode == graph.Stochastic {
		return kept + 2
	}
	return kept + 4 // compensation keeps what the narrower weight saves
}

// scalars are the values that the steps of all weights share.
type scalars struct{ lr, gscale, now, ok *graph.Value }

// step emits the rule's step for one weight. zero means that the gradient is a state, to
// be cleared.
func (o *Optimizer) step(b *graph.Builder, w, grad *graph.Value, zero bool, c scalars) {
	s := w.State
	decay, rate := 0.0, 1.0
	if s.Decay {
		decay = o.WeightDecay
	}
	if f, ok := o.GroupLR[s.Group]; ok {
		rate = f
	}
	full, scalars := s.Type.With(graph.F32), []*graph.Value{c.lr, c.gscale, c.now, c.ok}
	round := graph.Rounding{}
	if w.DType() == graph.BF16 {
		round.Mode = o.Round.Mode
	}
	narrow := o.Rule == AdamW8bit && s.Home().Type.Shape.Elems() >= Least8bit
	if round.Mode == graph.Stochastic || narrow {
		round.Seed, round.Stream, round.First = o.Round.Seed, graph.WeightStream(cmp.Or(s.Home().OldName, s.Home().Name)), s.From
	}
	in := []*graph.Value{w, grad}
	large := s.Type.Shape.Elems() >= LeastOffloaded
	add := func(c *graph.State) {
		c.Offloadable = large
		in = append(in, b.State(c))
	}
	keep := func(prefix string, t graph.Type) { add(companion(s, prefix, t, graph.Moment)) }
	var op graph.Op
	switch {
	case o.Rule == Lion:
		op = graph.Lion{Beta1: o.Beta1, Beta2: o.Beta2, WeightDecay: decay, LRScale: rate, ZeroGrad: zero, Round: round}
		keep(Moment1, full)
		if round.Mode != graph.Stochastic {
			scalars = []*graph.Value{c.lr, c.gscale, c.ok}
		}
	case narrow:
		op = graph.AdamW8bit{Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, WeightDecay: decay, LRScale: rate, ZeroGrad: zero, Round: round}
		codes, scales := graph.MomentTypes(s.Type)
		keep(Moment1, codes)
		keep(Moment2, codes)
		for _, prefix := range []string{Scale1, Scale2} {
			c := companion(s, prefix, scales, graph.Moment)
			c.From /= graph.MomentBlock
			add(c)
		}
	case o.Rule == Adafactor:
		a := graph.Adafactor{Decay: adafactorDecay, Eps: AdafactorEps, Clip: adafactorClip, WeightDecay: decay, LRScale: rate, ZeroGrad: zero, Round: round}
		if a.Factored = len(s.Type.Shape) > 1; a.Factored {
			rows, cols := graph.FactorTypes(s.Type)
			keep(Rows2, rows)
			keep(Columns2, cols)
		} else {
			keep(Moment2, full)
		}
		op = a
	case o.Rule == Muon && matrices(s) != nil:
		o.muon(b, w, grad, zero, c, graph.SGD{WeightDecay: decay, LRScale: rate, Round: round})
		return
	default:
		op = graph.AdamW{Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps, WeightDecay: decay, LRScale: rate, ZeroGrad: zero, Round: round}
		keep(Moment1, full)
		keep(Moment2, full)
	}
	if round.Mode == graph.Compensated {
		keep(Remainder, s.Type)
	}
	b.Emit(op, append(in, scalars...)...)
}

// matrices returns the shape in which Muon sees a weight: [R, C] or [N, R, C]; nil if
// AdamW updates it, as it does tables, heads and vectors.
func matrices(s *graph.State) graph.Shape {
	dims := s.Type.Shape
	if !s.Decay || len(dims) < 2 || s.Part == graph.Outer {
		return nil
	}
	shape := graph.Shape{dims[0], int(dims.Elems()) / dims[0]}
	if s.Part == graph.Stacked {
		shape = dims
	}
	if k := len(shape) - 2; shape[k] == 1 || shape[k+1] == 1 {
		return nil
	}
	return shape
}

// muon emits Muon's step for one weight, which descends along x. Decay is not multiplied
// by the rate that depends on the weight's shape.
func (o *Optimizer) muon(b *graph.Builder, w, grad *graph.Value, zero bool, c scalars, op graph.SGD) {
	s, shape := w.State, matrices(w.State)
	m := b.State(companion(s, Moment1, s.Type.With(graph.F32), graph.Moment))
	x, _ := b.MuonStep(m, grad, c.gscale, c.ok, muonMomentum, shape)
	k := len(shape) - 2
	rate := graph.MuonRate(shape[k], shape[k+1])
	op.WeightDecay, op.LRScale = op.WeightDecay/rate, op.LRScale*rate
	in := []*graph.Value{w, x}
	if op.Round.Mode == graph.Compensated {
		in = append(in, b.State(companion(s, Remainder, s.Type, graph.Moment)))
	}
	in = append(in, c.lr, b.Scalar(1))
	if op.Round.Mode == graph.Stochastic {
		in = append(in, c.now)
	}
	b.Emit(op, append(in, c.ok)...)
	if zero {
		b.Assign(grad, b.Emit(graph.Expand{Shape: grad.Shape()}, b.Scalar(0))[0])
	}
}
