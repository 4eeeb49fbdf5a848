package engine

import (
	"errors"
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Outer makes ranks train on their own between synchronizations (DiLoCo: Douillard et al. 2023,
// arXiv:2311.08105). Every rank applies InnerSteps updates to its own weights. What that changed, the
// synchronized weights minus the rank's own, is the outer gradient. Its mean over the ranks is applied
// to the synchronized weights by gradient descent with Nesterov momentum, and all ranks continue from
// the result.
//
// The program has a function for each half of that. In between, the caller adds up the outer gradients
// of all ranks; they are in the gradients, which are zero between two updates.
type Outer struct {
	World, InnerSteps      int
	LearningRate, Momentum float64
}

// Names of the functions, outputs and states that an [Outer] adds.
const (
	FuncOuterBegin    = "outer_begin"    // the synchronized weights become the weights
	FuncOuterGradient = "outer_gradient" // the gradients become what the weights changed by
	FuncOuterUpdate   = "outer_update"   // the sums of these are applied

	OutputOuterNorm = "outer_norm" // F32, of FuncOuterUpdate: the norm of the mean outer gradient

	Synchronized  = "outer.weights." // prefixes of a weight's name
	OuterMomentum = "outer.momentum."
)

// check refuses a training step that cannot have an outer optimizer.
func (o *Outer) check(t *Training) error {
	switch {
	case o == nil:
	case t.Sharding != nil:
		return errors.New("ranks that train on their own between synchronizations cannot share an optimizer")
	case t.Accumulation < 2 || o.World < 1 || t.Accumulation%o.World != 0:
		return fmt.Errorf("%d ranks cannot train on their own with updates of %d micro-batches: each needs as many", o.World, t.Accumulation)
	case t.Optimizer.Round.Mode != graph.Exact || t.Optimizer.Gradients == graph.BF16:
		return errors.New("an outer gradient needs weights and gradients in float32")
	case o.InnerSteps < 1:
		return fmt.Errorf("ranks cannot synchronize every %d updates", o.InnerSteps)
	}
	return nil
}

// outer returns the functions of the outer optimizer. They are built after those of micro-batches,
// when it is known which weights are trained.
func (s *trainingStep) outer() (list []*source) {
	o := s.Outer
	add := func(name string, build func(b *graph.Builder)) {
		list = append(list, &source{build: func([]*Func) *pass.Unit {
			b := graph.NewBuilder(name)
			b.Scope("outer", func() { build(b) })
			return &pass.Unit{F: b.F}
		}})
	}
	synchronized := func(b *graph.Builder, w *graph.State) *graph.Value {
		return b.State(companion(w, Synchronized, w.Type, graph.Reference))
	}
	add(FuncOuterBegin, func(b *graph.Builder) {
		for _, w := range s.trained {
			b.Assign(synchronized(b, w), b.State(w))
		}
	})
	add(FuncOuterGradient, func(b *graph.Builder) {
		for _, w := range s.trained {
			b.Assign(b.State(s.gradientOf(w)), b.Sub(synchronized(b, w), b.State(w)))
		}
	})
	add(FuncOuterUpdate, func(b *graph.Builder) {
		var norms []*graph.Value
		for _, w := range s.trained {
			sum, from := b.State(s.gradientOf(w)), synchronized(b, w)
			norms = append(norms, b.GlobalNorm(sum))
			mean := b.MulC(sum, 1/float64(o.World))
			step := mean
			if o.Momentum > 0 {
				m := b.State(companion(w, OuterMomentum, w.Type, graph.OuterMoment))
				m = b.Assign(m, b.Add(b.MulC(m, o.Momentum), mean))
				step = b.Add(mean, b.MulC(m, o.Momentum))
			}
			to := b.Assign(from, b.Sub(from, b.MulC(step, o.LearningRate)))
			b.Assign(b.State(w), to)
			b.Assign(sum, b.Emit(graph.Expand{Shape: sum.Shape()}, b.Scalar(0))[0])
		}
		b.Output(OutputOuterNorm, b.MulC(b.GlobalNorm(norms...), 1/float64(o.World)))
	})
	return list
}
