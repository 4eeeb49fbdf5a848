package graph

import (
	"fmt"
	"strings"
)

// Optimizer is one step of an optimizer for one weight, elementwise and in place. Operands: the
// weight w, its gradient g, the optimizer's states of the weight, and F32 scalars, of which lr
// and gscale are the first and ok the last. g is multiplied by gscale, and may be BF16. With ok
// = 0 the step is skipped and all states keep their values. Results: w, the states, and with
// ZeroGrad g, which is set to 0 also when the step is skipped. A 16-bit weight is widened to
// float32 and rounded again; see [Rounding].
type Optimizer interface {
	Op
	AutocastRule
	// Shared is the operation without what is specific to a weight.
	Shared() Op
	// States is the number of states.
	States() int
}

// weightOf is the type of the weight, if there are operands at all.
func weightOf(in []Type) (w Type) {
	if len(in) > 0 {
		w = in[0]
	}
	return w
}

// inferStep checks an optimizer's operands: states of the given types, and
// scalars of the given names.
func inferStep(in []Type, states []Type, scalars string, zero bool, r Rounding) ([]Type, error) {
	names := strings.Fields(scalars)
	states, wrong := r.weight(weightOf(in), states)
	if len(in) != 2+len(states)+len(names) {
		return nil, fmt.Errorf("takes w, g, states (%d) and the scalars %s, got %v", len(states), scalars, in)
	}
	if wrong != nil {
		return nil, wrong
	}
	if err := gradientOf(in[0], in[1]); err != nil {
		return nil, err
	}
	for i, t := range states {
		if !in[2+i].Equal(t) {
			return nil, fmt.Errorf("state %d of w %v is %v, want %v", i, in[0], in[2+i], t)
		}
	}
	for i, name := range names {
		if t := in[2+len(states)+i]; !t.Equal(T(F32)) {
			return nil, fmt.Errorf("%s is %v, want an f32 scalar", name, t)
		}
	}
	out := append([]Type{in[0]}, states...)
	if zero {
		out = append(out, in[1])
	}
	return out, nil
}

// gradientOf checks the type of a gradient of w.
func gradientOf(w, g Type) error {
	if !g.Equal(w.With(F32)) && !g.Equal(w.With(BF16)) {
		return fmt.Errorf("w is %v, but g is %v", w, g)
	}
	return nil
}

// autocastStep leaves the states as they are; a gradient is F32.
func autocastStep(in []Type, op Op) ([]DType, Op) {
	want := make([]DType, len(in))
	want[1] = F32
	return want, op
}

// stepAliases are w, the states and, with zero, g, written in place.
func stepAliases(states int, zero bool) []Alias {
	al := []Alias{{0, 0}}
	for i := range states {
		al = append(al, Alias{1 + i, 2 + i})
	}
	if zero {
		al = append(al, Alias{1 + states, 1})
	}
	return al
}

// AdamW is decoupled weight decay Adam (Loshchilov and Hutter 2019):
//
//	m = Beta1 m + (1-Beta1) g
//	v = Beta2 v + (1-Beta2) g^2
//	w -= lr LRScale WeightDecay w
//	w -= lr LRScale (m/(1-Beta1^t)) / (sqrt(v/(1-Beta2^t)) + Eps)
//
// Its states are m and v, its scalars lr, gscale, t (1 at the first step) and ok. With Rounded, a
// 16-bit format, the last of its states is w rounded to nearest, which it only writes; w is then F32.
type AdamW struct {
	Beta1, Beta2, Eps, WeightDecay float64
	LRScale                        float64
	ZeroGrad                       bool
	Round                          Rounding
	Rounded                        DType
}

// Name is "adamw".
func (AdamW) Name() string { return "adamw" }

// Shared implements Optimizer.
func (a AdamW) Shared() Op {
	a.WeightDecay, a.LRScale, a.Round, a.Rounded = 0, 0, a.Round.shared(), Invalid
	return a
}

// States implements Optimizer.
func (a AdamW) States() int {
	if a.Rounded != Invalid {
		return 3
	}
	return 2 + a.Round.states()
}

// Infer keeps the states' types.
func (a AdamW) Infer(in []Type) ([]Type, error) {
	w := weightOf(in)
	states := []Type{w.With(F32), w.With(F32)}
	if a.Rounded != Invalid {
		if !a.Rounded.Half() || a.Round.Mode != Exact {
			return nil, fmt.Errorf("leaves weights %v and rounds them to %v", w, a.Rounded)
		}
		states = append(states, w.With(a.Rounded))
	}
	return inferStep(in, states, "lr gscale t ok", a.ZeroGrad, a.Round)
}

// Aliases: w, m, v (and g) are written in place.
func (a AdamW) Aliases(int) []Alias { return stepAliases(a.States(), a.ZeroGrad) }

// Autocast widens a gradient.
func (a AdamW) Autocast(in []Type, _ DType) ([]DType, Op) { return autocastStep(in, a) }

// Grad: a step is not differentiated.
func (a AdamW) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, a) }

// Cost is one pass over memory.
func (a AdamW) Cost(in, out []Type) Cost {
	c := traffic(in, out, 14)
	if a.Rounded != Invalid {
		c.Bytes -= float64(in[4].Bytes()) // which is not read
	}
	return c
}

// MomentBlock is how many elements of an 8-bit moment share a scale.
const MomentBlock = 256

// AdamW8bit is AdamW with moments in 8 bits (Dettmers et al. 2022, arXiv:2110.02861):
// each block of MomentBlock elements has its largest magnitude as its scale, and an
// element is the index of a number in [0, 1] or [-1, 1] (package codebook) that is
// multiplied by it. First moments are rounded to nearest, second moments stochastically:
// in an update most of them change by less than half the distance to the next number, and
// rounded to nearest would not change at all. Their random bits are those of [Rounding]
// with [SecondMoments] added to t. A second moment above 0 is never rounded to 0, which
// would make the next step as large as Eps allows.
//
// Its states are m and v (U8, of the shape of w), and their scales (F32, one for each
// block); its scalars lr, gscale, t (1 at the first step) and ok.
type AdamW8bit struct {
	Beta1, Beta2, Eps, WeightDecay float64
	LRScale                        float64
	ZeroGrad                       bool
	Round                          Rounding
}

// AdamW is the step with the moments in float32.
func (a AdamW8bit) AdamW() AdamW {
	return AdamW{Beta1: a.Beta1, Beta2: a.Beta2, Eps: a.Eps, WeightDecay: a.WeightDecay, LRScale: a.LRScale, ZeroGrad: a.ZeroGrad, Round: a.Round}
}

// Name is "adamw8bit".
func (AdamW8bit) Name() string { return "adamw8bit" }

// Shared implements Optimizer.
func (a AdamW8bit) Shared() Op {
	a.WeightDecay, a.LRScale, a.Round = 0, 0, a.Round.shared()
	return a
}

// States implements Optimizer.
func (a AdamW8bit) States() int { return 4 + a.Round.states() }

// Infer keeps the states' types.
func (a AdamW8bit) Infer(in []Type) ([]Type, error) {
	codes, scales := MomentTypes(weightOf(in))
	return inferStep(in, []Type{codes, codes, scales, scales}, "lr gscale t ok", a.ZeroGrad, a.Round)
}

// MomentTypes are the types of an 8-bit moment of w and of its scales.
func MomentTypes(w Type) (codes, scales Type) {
	return Type{U8, w.Shape}, T(F32, int((w.Shape.Elems()+MomentBlock-1)/MomentBlock))
}

// Aliases: w, the states (and g) are written in place.
func (a AdamW8bit) Aliases(int) []Alias { return stepAliases(a.States(), a.ZeroGrad) }

// Autocast widens a gradient.
func (a AdamW8bit) Autocast(in []Type, _ DType) ([]DType, Op) { return autocastStep(in, a) }

// Grad: a step is not differentiated.
func (a AdamW8bit) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, a) }

// Cost is one pass over memory.
func (AdamW8bit) Cost(in, out []Type) Cost { return traffic(in, out, 40) }

// Lion moves each weight by the sign of an average of gradients (Chen et al. 2023,
// arXiv:2302.06675):
//
//	w -= lr LRScale WeightDecay w
//	w -= lr LRScale sign(Beta1 m + (1-Beta1) g)
//	m = Beta2 m + (1-Beta2) g
//
// Its state is m, its scalars lr, gscale, with stochastic rounding t, and ok.
type Lion struct {
	Beta1, Beta2, WeightDecay float64
	LRScale                   float64
	ZeroGrad                  bool
	Round                     Rounding
}

// Name is "lion".
func (Lion) Name() string { return "lion" }

// Shared implements Optimizer.
func (l Lion) Shared() Op {
	l.WeightDecay, l.LRScale, l.Round = 0, 0, l.Round.shared()
	return l
}

// States implements Optimizer.
func (l Lion) States() int { return 1 + l.Round.states() }

// Infer keeps the states' types.
func (l Lion) Infer(in []Type) ([]Type, error) {
	scalars := "lr gscale ok"
	if l.Round.Mode == Stochastic {
		scalars = "lr gscale t ok"
	}
	return inferStep(in, []Type{weightOf(in).With(F32)}, scalars, l.ZeroGrad, l.Round)
}

// Aliases: w, m (and g) are written in place.
func (l Lion) Aliases(int) []Alias { return stepAliases(l.States(), l.ZeroGrad) }

// Autocast widens a gradient.
func (l Lion) Autocast(in []Type, _ DType) ([]DType, Op) { return autocastStep(in, l) }

// Grad: a step is not differentiated.
func (l Lion) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, l) }

// Cost is one pass over memory.
func (Lion) Cost(in, out []Type) Cost { return traffic(in, out, 9) }

// Assign writes its second operand into the state that is its first. With Add it adds to
// the state, in float32; a 16-bit state is rounded to nearest or, with [Stochastic]
// rounding, stochastically. Then the state is BF16, and the third operand is the run
// counter I32 [2], whose word 0 is the t of the random numbers.
type Assign struct {
	Add   bool
	Round Rounding
}

// Name is "assign" or "accumulate".
func (a Assign) Name() string {
	if a.Add {
		return "accumulate"
	}
	return "assign"
}

// Infer keeps the state's type.
func (a Assign) Infer(in []Type) ([]Type, error) {
	if a.Round.First != 0 {
		return nil, fmt.Errorf("begins at element %d of another state", a.Round.First)
	}
	if a.Round.Mode == Stochastic {
		if len(in) != 3 || in[0].DType != BF16 || !in[2].Equal(T(I32, 2)) {
			return nil, fmt.Errorf("rounds at random, which wants a state of bf16, what is put there and the run counter i32[2], got %v", in)
		}
		in = in[:2]
	}
	if len(in) != 2 || !in[0].Shape.Equal(in[1].Shape) {
		return nil, fmt.Errorf("cannot put %v into a state", in)
	}
	return []Type{in[0]}, nil
}

// Aliases: the state is written in place.
func (Assign) Aliases(int) []Alias { return []Alias{{0, 0}} }

// Grad: states are not differentiated through.
func (a Assign) Grad(_ *Builder, n *Node, _ []*Value) []*Value { return make([]*Value, len(n.In)) }

// Cost is one pass over memory.
func (a Assign) Cost(in, out []Type) Cost {
	flops := 1.0
	if a.Round.Mode == Stochastic {
		flops = 6 // with the random numbers
	}
	return traffic(in, out, flops)
}

// Autocast converts while copying.
func (a Assign) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), a }

// Assign writes v into the state s; the result is the state's next version.
func (b *Builder) Assign(s, v *Value) *Value { return b.emit1(Assign{}, s, v) }

// Accumulate adds v to the state s in place; the result is the state's next version.
func (b *Builder) Accumulate(s, v *Value) *Value { return b.emit1(Assign{Add: true}, s, v) }

// AccumulateBF16 adds v to a 16-bit state in place, and rounds the sum stochastically, so
// that values much smaller than the sum count on average. stream distinguishes it from other
// states.
func (b *Builder) AccumulateBF16(s, v *Value, seed uint64, stream uint32) *Value {
	op := Assign{Add: true, Round: Rounding{Mode: Stochastic, Seed: seed, Stream: stream}}
	return b.emit1(op, s, v, b.Input(RunCounter, T(I32, 2)))
}

// NormChunk is how many elements of an operand the processor sums at a time for
// [GlobalNorm]; sums are added in order.
const NormChunk = 64 << 10

// GlobalNorm is sqrt(sum over all operands of the sum of squares), summed in
// float64 in a fixed order. Operands are F32 or BF16.
type GlobalNorm struct{}

// Name is "global_norm".
func (GlobalNorm) Name() string { return "global_norm" }

// Infer returns a scalar.
func (GlobalNorm) Infer(in []Type) ([]Type, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("takes at least one operand")
	}
	for i, t := range in {
		if t.DType != F32 && t.DType != BF16 {
			return nil, fmt.Errorf("operand %d is %v, want f32 or bf16", i, t)
		}
	}
	return []Type{T(F32)}, nil
}

// Grad: the norm of gradients is not differentiated.
func (g GlobalNorm) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, g) }

// Cost is one read.
func (GlobalNorm) Cost(in, out []Type) Cost {
	c := traffic(in, out, 0)
	for _, t := range in {
		c.FLOPs += 2 * float64(t.Shape.Elems())
	}
	return c
}

// GlobalNorm is the Euclidean norm of all xs together.
func (b *Builder) GlobalNorm(xs ...*Value) *Value { return b.emit1(GlobalNorm{}, xs...) }
