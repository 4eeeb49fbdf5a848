package nn

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// LoRA is a low-rank update of linear layers (Hu et al. 2021, arXiv
// 2106.09685): y + Alpha/Rank * B A dropout(x), with A [Rank, in] drawn from
// U(-1/sqrt in, 1/sqrt in) and B [out, Rank] zero, so that an adapted model
// starts as the model it adapts.
type LoRA struct {
	// Name is the scope of the two weights below the layer's scope.
	Name    string
	Rank    int
	Alpha   float64
	Dropout float64
	Seed    uint64 // of the run, for dropout
	Variant LoRAVariant
}

// LoRAVariant is one of the forms of a low-rank update.
type LoRAVariant string

// The variants.
const (
	PlainLoRA LoRAVariant = "lora" // or empty
	// RankStabilized multiplies B A by Alpha/sqrt(Rank) (Kalajdzievski 2023, arXiv
	// 2312.03732), so that an update does not shrink as its rank grows.
	RankStabilized LoRAVariant = "rslora"
	// Decomposed scales each row of W + Alpha/Rank B A to a trained magnitude, which
	// begins as the norm of the row of W (Liu et al. 2024, arXiv 2402.09353). The norm in
	// the denominator is treated as a constant by the gradient (ibid. section 4.3).
	Decomposed LoRAVariant = "dora"
)

// Scale is the factor of B A.
func (l LoRA) Scale() float64 {
	if l.Variant == RankStabilized {
		return l.Alpha / math.Sqrt(float64(l.Rank))
	}
	return l.Alpha / float64(l.Rank)
}

// Weights returns the names of A and B of a layer.
func (l LoRA) Weights(layer string) (down, up string) {
	return fmt.Sprintf("%s.%s.down", layer, l.Name), fmt.Sprintf("%s.%s.up", layer, l.Name)
}

// Delta returns the update for x [..., in]: [..., out]. Call it within the layer's scope.
func (l LoRA) Delta(b *graph.Builder, x *graph.Value, out int, train bool) (d *graph.Value) {
	if l.Rank < 1 {
		b.Failf("a low-rank update wants a rank of 1 or more, got %d", l.Rank)
	}
	in := x.Shape().Last()
	b.Scope(l.Name, func() {
		down := b.Param("down", graph.Uniform(1/math.Sqrt(float64(in))), l.Rank, in)
		up := b.Param("up", graph.Zeros(), out, l.Rank)
		if train {
			x = b.Dropout(x, l.Dropout, l.Seed)
		}
		d = b.Linear(b.MulC(b.Linear(x, down, nil), l.Scale()), up, nil) // scaled where it is narrow
	})
	return d
}

// deltaStack is Delta for a stack of matrices: A and B are stacked as well.
func (l LoRA) deltaStack(b *graph.Builder, layer graph.LinearLayer, train bool) (d *graph.Value) {
	s, x := layer.W.Shape(), layer.X
	b.Scope(l.Name, func() {
		b.As(graph.Stacked, func() {
			down := b.Param("down", graph.Uniform(1/math.Sqrt(float64(s[2]))), s[0], l.Rank, s[2])
			up := b.Param("up", graph.Zeros(), s[0], s[1], l.Rank)
			if train {
				x = b.Dropout(x, l.Dropout, l.Seed)
			}
			h := b.MulC(b.GroupedLinear(x, down, nil, layer.Routing), l.Scale())
			d = b.GroupedLinear(h, up, nil, layer.Routing)
		})
	})
	return d
}

// Gated is an update that is weighted for each row of a batch by Gate, F32 [B, 1,
// 1]; nil is 1.
type Gated struct {
	LoRA
	Gate *graph.Value
}

// Adapt returns y, the result of a linear layer for x [B, T, in], with the updates.
func Adapt(b *graph.Builder, x, y *graph.Value, train bool, updates ...Gated) *graph.Value {
	for _, u := range updates {
		d := u.Delta(b, x, y.Shape().Last(), train)
		if u.Gate != nil {
			d = b.Mul(d, u.Gate)
		}
		y = b.Add(y, d)
	}
	return y
}

// Factors are the trained weights of an update: A [Rank, in], B [out, Rank] and, with
// [Decomposed], the magnitudes [out].
type Factors struct{ Down, Up, Magnitude []float32 }

// Merge adds the update to the weight w [out, in] of a layer, which then needs
// no adapter; down and up are A and B.
func (l LoRA) Merge(w, down, up []float32) error {
	return l.MergeInto(w, Factors{Down: down, Up: up}, false)
}

// MergeStack is MergeInto for a weight [groups, out, in], a stack of matrices whose factors
// are stacked as well.
func (l LoRA) MergeStack(w []float32, f Factors, groups int) error {
	if groups < 1 || len(w)%groups != 0 || len(f.Down)%groups != 0 || len(f.Up)%groups != 0 {
		return fmt.Errorf("an update with factors of %d and %d elements does not fit a stack of %d matrices with %d", len(f.Down), len(f.Up), groups, len(w))
	}
	part := func(x []float32, g int) []float32 { return x[len(x)/groups*g : len(x)/groups*(g+1)] }
	for g := range groups {
		if err := l.MergeInto(part(w, g), Factors{Down: part(f.Down, g), Up: part(f.Up, g), Magnitude: part(f.Magnitude, g)}, false); err != nil {
			return err
		}
	}
	return nil
}

// MergeInto is Merge for any variant, and with inOut for a weight stored [in, out].
func (l LoRA) MergeInto(w []float32, f Factors, inOut bool) error {
	down, up := f.Down, f.Up
	if l.Rank < 1 || len(down)%l.Rank != 0 || len(up)%l.Rank != 0 || len(w) != len(down)/l.Rank*(len(up)/l.Rank) {
		return fmt.Errorf("an update of rank %d with factors of %d and %d elements does not fit a weight of %d", l.Rank, len(down), len(up), len(w))
	}
	in, out, scale := len(down)/l.Rank, len(up)/l.Rank, l.Scale()
	if l.Variant == Decomposed && len(f.Magnitude) != out {
		return fmt.Errorf("an update with %d magnitudes does not fit a weight with %d rows", len(f.Magnitude), out)
	}
	at := func(o, i int) *float32 { return &w[o*in+i] }
	if inOut {
		at = func(o, i int) *float32 { return &w[i*out+o] }
	}
	sum := make([]float64, in)
	for o := range out {
		clear(sum)
		for r, u := range up[o*l.Rank : (o+1)*l.Rank] {
			for i, d := range down[r*in : (r+1)*in] {
				sum[i] += float64(u) * float64(d)
			}
		}
		square := 0.0
		for i, s := range sum {
			sum[i] = float64(*at(o, i)) + scale*s
			square += sum[i] * sum[i]
		}
		factor := 1.0
		if l.Variant == Decomposed {
			factor = float64(f.Magnitude[o]) / math.Sqrt(square)
		}
		for i, s := range sum {
			*at(o, i) = float32(factor * s)
		}
	}
	return nil
}
