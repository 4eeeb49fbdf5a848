package graph

import "fmt"

// Adafactor divides gradients by the root of their mean squares, of which a matrix keeps
// only the means of rows and of columns (Shazeer and Stern 2018, arXiv:1804.04235), and
// bounds the root mean square of what is left:
//
//	b = 1 - t^-Decay
//	r = b r + (1-b) (mean over columns of g^2 + Eps)
//	c = b c + (1-b) (mean over rows of g^2 + Eps)
//	x = g / sqrt(r c / mean(r))
//	x = x / max(1, sqrt(mean over w of x^2) / Clip)
//	w -= lr LRScale WeightDecay w
//	w -= lr LRScale x
//
// A matrix is the last two dimensions; leading dimensions are several matrices. Without
// Factored one state v, of the shape of w, replaces r c / mean(r), and v = b v + (1-b)
// (g^2 + Eps).
//
// Its states are r and c, or v, its scalars lr, gscale, t (1 at the first step) and ok.
type Adafactor struct {
	Decay, Eps, Clip, WeightDecay float64
	LRScale                       float64
	Factored, ZeroGrad            bool
	Round                         Rounding
}

// Name is "adafactor".
func (Adafactor) Name() string { return "adafactor" }

// Shared implements Optimizer.
func (a Adafactor) Shared() Op {
	a.WeightDecay, a.LRScale, a.Round = 0, 0, a.Round.shared()
	return a
}

// States implements Optimizer.
func (a Adafactor) States() int {
	n := 1 + a.Round.states()
	if a.Factored {
		n++
	}
	return n
}

// FactorTypes are the types of the states of w with Factored, which needs two
// dimensions.
func FactorTypes(w Type) (rows, cols Type) {
	s, k := w.Shape, len(w.Shape)-2
	return Type{F32, s[:k+1]}, Type{F32, append(s[:k].Clone(), s[k+1])}
}

// Matrices returns the extents of the matrices that the step sees in w. For a weight that
// is not factored, v is the means over one row.
func (a Adafactor) Matrices(w Shape) (batch, rows, cols int) {
	if !a.Factored {
		return 1, 1, int(w.Elems())
	}
	k := len(w) - 2
	return int(w[:k].Elems()), w[k], w[k+1]
}

// Infer keeps the states' types.
func (a Adafactor) Infer(in []Type) ([]Type, error) {
	if a.Round.First != 0 {
		return nil, fmt.Errorf("begins at element %d of a weight, want the whole: it takes means of rows and columns", a.Round.First)
	}
	w := weightOf(in)
	states := []Type{w.With(F32)}
	if a.Factored {
		if len(w.Shape) < 2 {
			return nil, fmt.Errorf("is factored, which wants w of two dimensions or more, got %v", in)
		}
		rows, cols := FactorTypes(w)
		states = []Type{rows, cols}
	}
	return inferStep(in, states, "lr gscale t ok", a.ZeroGrad, a.Round)
}

// Aliases: w, the states (and g) are written in place.
func (a Adafactor) Aliases(int) []Alias { return stepAliases(a.States(), a.ZeroGrad) }

// Autocast widens a gradient.
func (a Adafactor) Autocast(in []Type, _ DType) ([]DType, Op) { return autocastStep(in, a) }

// Grad: a step is not differentiated.
func (a Adafactor) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, a) }

// Cost is three passes over the gradient and one over the weight: the divisor of a row is
// known only after the last column, and the bound only after that.
func (Adafactor) Cost(in, out []Type) Cost {
	c := traffic(in, out, 14)
	if len(in) > 1 {
		c.Bytes += 2 * float64(in[1].Bytes())
	}
	return c
}
