package cloudbase

import (
	"math"

	"github.com/snug-ml/snug/engine/graph"
)

// each returns the loss of every example. y and truth are [B], in units of the standard deviation of the
// training labels. With e = y - truth and
//
//	huber(e) = e^2/2 where |e| < delta, else delta*(|e| - delta/2)   (Huber 1964)
//
// the kinds are
//
//	huber               huber(e)
//	mae, mse            |e|, e^2
//	mse_mae             alpha*e^2 + (1-alpha)*|e|
//	huber_mae           alpha*huber(e) + (1-alpha)*|e|^gamma
//	weighted_huber      u*huber(e)
//	weighted_huber_mae  u*(alpha*huber(e) + (1-alpha)*|e|^gamma)
//
// where u is under_weight for predictions below the truth and otherwise 1.
func (l *Loss) each(b *graph.Builder, y, truth *graph.Value) *graph.Value {
	e := b.Sub(y, truth)
	abs := b.Apply(graph.FnAbs, e)
	blend := func(p, q *graph.Value) *graph.Value { return b.Add(b.MulC(p, l.Alpha), b.MulC(q, 1-l.Alpha)) }
	switch l.Kind {
	case "mae":
		return abs
	case "mse":
		return b.Square(e)
	case "mse_mae":
		return blend(b.Square(e), abs)
	}
	// Square the part below delta, and add the linear part above it.
	square := b.MinC(abs, l.Delta)
	loss := b.Add(b.MulC(b.Square(square), 0.5), b.MulC(b.Sub(abs, square), l.Delta))
	if l.Kind == "huber_mae" || l.Kind == "weighted_huber_mae" {
		loss = blend(loss, power(b, abs, l.Gamma))
	}
	if l.Kind == "weighted_huber" || l.Kind == "weighted_huber_mae" {
		under := b.Apply(graph.FnPositive, b.Neg(e))
		loss = b.Mul(loss, b.AddC(b.MulC(under, l.UnderWeight-1), 1))
	}
	return loss
}

// power returns x^p for x >= 0.
func power(b *graph.Builder, x *graph.Value, p float64) *graph.Value {
	const tiny = 1e-6 // below this, the logarithm is clamped
	if p == 1 {
		return x
	}
	return b.Exp(b.MulC(b.Log(b.MaxC(x, tiny)), p))
}

// total sums the losses. In training, the hardest share of a micro-batch counts hard_mining_factor times
// (Shrivastava et al. 2016 use only those).
func (l *Loss) total(b *graph.Builder, each *graph.Value, train bool) *graph.Value {
	sum := b.Sum(each)
	k := int(math.Round(l.HardShare * float64(each.Shape()[0])))
	if !train || k == 0 || l.HardFactor == 1 {
		return sum
	}
	hard, _ := b.TopK(each, k)
	return b.Add(sum, b.MulC(b.Sum(hard), l.HardFactor-1))
}
