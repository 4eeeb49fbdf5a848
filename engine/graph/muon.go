package graph

import "math"

// SGD is a step along the gradient with decoupled weight decay:
//
//	w -= lr LRScale WeightDecay w
//	w -= lr LRScale g
//
// It has no states; its scalars are lr, gscale, with stochastic rounding t, and ok.
type SGD struct {
	WeightDecay, LRScale float64
	ZeroGrad             bool
	Round                Rounding
}

// Name is "sgd".
func (SGD) Name() string { return "sgd" }

// Shared implements Optimizer.
func (s SGD) Shared() Op {
	s.WeightDecay, s.LRScale, s.Round = 0, 0, s.Round.shared()
	return s
}

// States implements Optimizer.
func (s SGD) States() int { return s.Round.states() }

// Infer keeps the states' types.
func (s SGD) Infer(in []Type) ([]Type, error) {
	scalars := "lr gscale ok"
	if s.Round.Mode == Stochastic {
		scalars = "lr gscale t ok"
	}
	return inferStep(in, nil, scalars, s.ZeroGrad, s.Round)
}

// Aliases: w, its remainder (and g) are written in place.
func (s SGD) Aliases(int) []Alias { return stepAliases(s.States(), s.ZeroGrad) }

// Autocast widens a gradient.
func (s SGD) Autocast(in []Type, _ DType) ([]DType, Op) { return autocastStep(in, s) }

// Grad: a step is not differentiated.
func (s SGD) Grad(b *Builder, _ *Node, _ []*Value) []*Value { return noSecond(b, s) }

// Cost is one pass over memory.
func (SGD) Cost(in, out []Type) Cost { return traffic(in, out, 4) }

// The constants of Muon's authors.
const (
	muonRounds = 5
	muonEps    = 1e-7
)

var muonCoefficients = [3]float64{3.4445, -4.7750, 2.0315}

// Orthogonalized is about U V^T for matrices x = U S V^T [.., R, C]: five iterations of
// Newton and Schulz with the coefficients of Jordan et al. 2024 (Muon), which bring
// singular values near 1, not to it:
//
//	x = x / max(|x|, 1e-7)
//	a = x x^T, x = 3.4445 x + (-4.7750 a + 2.0315 a a) x    five times
//
// It uses the smaller of the two Gram matrices. In mixed precision the matmuls have
// 16-bit operands, like the authors'.
func (b *Builder) Orthogonalized(x *Value) *Value {
	s := x.Shape()
	k := len(s) - 2
	var norm *Value
	if k == 0 {
		norm = b.GlobalNorm(x)
	} else {
		norm = b.Sqrt(b.SumKeep(b.Square(x), k, k+1))
	}
	x = b.Div(x, b.MaxC(norm, muonEps))
	tall := s[k] > s[k+1]
	for range muonRounds {
		a := b.MatMul(x, x, tall, !tall)
		p := b.Add(b.MulC(a, muonCoefficients[1]), b.MulC(b.MatMul(a, a, false, false), muonCoefficients[2]))
		left, right := p, x
		if tall {
			left, right = x, p
		}
		x = b.Add(b.MulC(x, muonCoefficients[0]), b.MatMul(left, right, false, false))
	}
	return x
}

// MuonRate is the factor of a matrix's learning rate that makes steps as large as AdamW's
// (Liu et al. 2025, arXiv:2502.16982).
func MuonRate(rows, cols int) float64 { return 0.2 * math.Sqrt(float64(max(rows, cols))) }

// MuonStep returns the direction of Muon's step for matrices: the momentum m of the
// gradients g times gscale, with Nesterov's look-ahead, orthogonalized in the given
// shape. m is a state; with ok = 0 it keeps its value. next is its next version.
func (b *Builder) MuonStep(m, g, gscale, ok *Value, momentum float64, shape Shape) (x, next *Value) {
	g = b.Mul(b.Cast(g, F32), gscale)
	next = b.Assign(m, b.Select(ok, b.Add(b.MulC(m, momentum), b.MulC(g, 1-momentum)), m))
	x = b.Add(b.MulC(g, 1-momentum), b.MulC(next, momentum))
	return b.Reshape(b.Orthogonalized(b.Reshape(x, shape...)), g.Shape()...), next
}
