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

// outerElems is how many elements of a weight the outer optimizer works on at a time, which bounds its
// temporaries.
const outerElems = 4 << 20

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
	synchronized := func(w *graph.State) *graph.State { return companion(w, Synchronized, w.Type, graph.Reference) }
	each := func(do func(w *graph.State, part func(s *graph.State) *graph.State)) {
		for _, w := range s.trained {
			n := w.Type.Shape.Elems()
			for from := int64(0); from < n; from += outerElems {
				do(w, func(s *graph.State) *graph.State { return window(s, Part{s, from, min(outerElems, n-from)}) })
			}
		}
	}
	add(FuncOuterBegin, func(b *graph.Builder) {
		for _, w := range s.trained {
			b.Assign(b.State(synchronized(w)), b.State(w))
		}
	})
	add(FuncOuterGradient, func(b *graph.Builder) {
		each(func(w *graph.State, part func(*graph.State) *graph.State) {
			b.Assign(b.State(part(s.gradientOf(w))), b.Sub(b.State(part(synchronized(w))), b.State(part(w))))
		})
	})
	add(FuncOuterUpdate, func(b *graph.Builder) {
		var norms []*graph.Value
		each(func(w *graph.State, part func(*graph.State) *graph.State) {
			sum, from := b.State(part(s.gradientOf(w))), b.State(part(synchronized(w)))
			norms = append(norms, b.GlobalNorm(sum))
			mean := b.MulC(sum, 1/float64(o.World))
			step := mean
			if o.Momentum > 0 {
				m := b.State(part(companion(w, OuterMomentum, w.Type, graph.OuterMoment)))
				m = b.Assign(m, b.Add(b.MulC(m, o.Momentum), mean))
				step = b.Add(mean, b.MulC(m, o.Momentum))
			}
			to := b.Assign(from, b.Sub(from, b.MulC(step, o.LearningRate)))
			b.Assign(b.State(part(w)), to)
			b.Assign(sum, b.Emit(graph.Expand{Shape: sum.Shape()}, b.Scalar(0))[0])
		})
		b.Output(OutputOuterNorm, b.MulC(b.GlobalNorm(norms...), 1/float64(o.World)))
	})
	return list
}
