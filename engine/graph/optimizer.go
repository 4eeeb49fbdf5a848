package graph

import "fmt"

// AdamW is one update of decoupled weight decay Adam (Loshchilov and Hutter
// 2019), elementwise and in place:
//
//	g *= gscale
//	m = Beta1 m + (1-Beta1) g
//	v = Beta2 v + (1-Beta2) g^2
//	w -= lr LRScale WeightDecay w
//	w -= lr LRScale (m/(1-Beta1^t)) / (sqrt(v/(1-Beta2^t)) + Eps)
//
// Operands: w, g, m, v, and the F32 scalars lr, gscale, t (1 at the first
// step) and ok. With ok = 0 the update is skipped: w, m and v stay. Results: w,
// m, v, and with ZeroGrad g, which is set to 0 also when the update is skipped.
type AdamW struct {
	Beta1, Beta2, Eps, WeightDecay float64
	LRScale                        float64
	ZeroGrad                       bool
}

// Name is "adamw".
func (AdamW) Name() string { return "adamw" }

// Infer keeps the states' types.
func (a AdamW) Infer(in []Type) ([]Type, error) {
	if len(in) != 8 {
		return nil, fmt.Errorf("wants w, g, m, v, lr, gscale, t and ok, got %v", in)
	}
	for _, t := range in[1:4] {
		if !t.Equal(in[0]) {
			return nil, fmt.Errorf("w is %v, but g, m, v are %v", in[0], in[1:4])
		}
	}
	if err := full(in[0]); err != nil {
		return nil, err
	}
	for _, t := range in[4:] {
		if !t.Equal(T(F32)) {
			return nil, fmt.Errorf("lr, gscale, t and ok are f32 scalars, got %v", in[4:])
		}
	}
	out := []Type{in[0], in[2], in[3]}
	if a.ZeroGrad {
		out = append(out, in[1])
	}
	return out, nil
}

// Aliases: w, m, v (and g) are written in place.
func (a AdamW) Aliases(int) []Alias {
	al := []Alias{{0, 0}, {1, 2}, {2, 3}}
	if a.ZeroGrad {
		al = append(al, Alias{3, 1})
	}
	return al
}

// Grad: an optimizer update is not differentiated.
func (a AdamW) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, a) }

// Cost is one pass over memory.
func (AdamW) Cost(in, out []Type) Cost { return traffic(in, out, 14) }

// Assign writes its second operand into the state that is its first. With Add
// it adds to it.
type Assign struct{ Add bool }

// Name is "assign" or "accumulate".
func (a Assign) Name() string {
	if a.Add {
		return "accumulate"
	}
	return "assign"
}

// Infer keeps the state's type.
func (a Assign) Infer(in []Type) ([]Type, error) {
	if len(in) != 2 || !in[0].Shape.Equal(in[1].Shape) {
		return nil, fmt.Errorf("cannot put %v into a state", in)
	}
	return []Type{in[0]}, nil
}

// Aliases: the state is written in place.
func (Assign) Aliases(int) []Alias { return []Alias{{0, 0}} }

// Grad: states are not differentiated through.
func (a Assign) Grad(*Builder, *Node, []*Value) []*Value { return []*Value{nil, nil} }

// Cost is one pass over memory.
func (a Assign) Cost(in, out []Type) Cost { return traffic(in, out, 1) }

// Autocast converts on the way.
func (a Assign) Autocast(in []Type, _ DType) ([]DType, Op) { return make([]DType, len(in)), a }

// Assign writes v into the state s; the result is the state's next version.
func (b *Builder) Assign(s, v *Value) *Value { return b.emit1(Assign{}, s, v) }

// Accumulate adds v to the state s in place; the result is the state's next version.
func (b *Builder) Accumulate(s, v *Value) *Value { return b.emit1(Assign{Add: true}, s, v) }

// GlobalNorm is sqrt(sum over all operands of the sum of squares), summed in
// float64 in a fixed order.
type GlobalNorm struct{}

// Name is "global_norm".
func (GlobalNorm) Name() string { return "global_norm" }

// Infer gives a scalar.
func (GlobalNorm) Infer(in []Type) ([]Type, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("takes at least one operand")
	}
	if err := full(in...); err != nil {
		return nil, err
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
