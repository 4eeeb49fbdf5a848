package metric

import "math"

// Bin holds the examples whose predicted probability is in [Low, High); the last bin
// includes 1.
type Bin struct {
	Low, High float64
	Count     int
	// Predicted is the mean probability, Observed the share of positives; 0 in
	// an empty bin.
	Predicted, Observed float64
}

// Reliability sorts predicted probabilities into bins of equal width: what the
// reliability curve shows (Niculescu-Mizil and Caruana 2005).
func Reliability(probs []float64, positive []bool, bins int) []Bin {
	out := make([]Bin, bins)
	for b := range out {
		out[b].Low, out[b].High = float64(b)/float64(bins), float64(b+1)/float64(bins)
	}
	for i, p := range probs {
		b := &out[min(bins-1, max(0, int(p*float64(bins))))]
		b.Count++
		b.Predicted += p
		if positive[i] {
			b.Observed++
		}
	}
	for b := range out {
		if n := float64(out[b].Count); n > 0 {
			out[b].Predicted /= n
			out[b].Observed /= n
		}
	}
	return out
}

// ECE is the expected calibration error: the mean distance of the predicted
// probability from the observed share, weighted by the bins' counts (Naeini et
// al. 2015). 0 without examples.
func ECE(bins []Bin) float64 {
	sum, n := 0.0, 0
	for _, b := range bins {
		sum += float64(b.Count) * math.Abs(b.Predicted-b.Observed)
		n += b.Count
	}
	return sum / float64(max(1, n))
}

// Brier is the mean squared distance of the probability from the outcome
// (Brier 1950).
func Brier(probs []float64, positive []bool) float64 {
	sum := 0.0
	for i, p := range probs {
		d := p
		if positive[i] {
			d = 1 - p
		}
		sum += d * d
	}
	return sum / float64(max(1, len(probs)))
}

// LogLoss is the mean negative log-likelihood, in nats, of margins: the logit of
// the positive class minus that of the negative.
func LogLoss(margins []float64, positive []bool) float64 {
	return logLoss(margins, positive, 1)
}

func logLoss(margins []float64, positive []bool, scale float64) float64 {
	sum := 0.0
	for i, m := range margins {
		sum += softplus(-signed(m*scale, positive[i]))
	}
	return sum / float64(max(1, len(margins)))
}

// softplus is log(1 + exp(x)) without overflow.
func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

func signed(m float64, positive bool) float64 {
	if positive {
		return m
	}
	return -m
}

// Sigmoid is 1/(1 + exp(-x)): the probability of a margin.
func Sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// The range of temperatures to try: beyond it the data says no more than "always right"
// or "a coin toss".
const minTemperature, maxTemperature = 0.05, 20

// Temperature returns the divisor of margins that maximizes their likelihood (Guo et al.
// 2017, section 4.2): above 1 for an overconfident model. The loss is convex in its
// inverse, so golden section search finds the minimum; 1 without examples.
func Temperature(margins []float64, positive []bool) float64 {
	if len(margins) == 0 {
		return 1
	}
	const golden = 0.6180339887498949
	lo, hi := 1.0/maxTemperature, 1.0/minTemperature
	a, b := hi-golden*(hi-lo), lo+golden*(hi-lo)
	fa, fb := logLoss(margins, positive, a), logLoss(margins, positive, b)
	for hi-lo > 1e-9 {
		if fa <= fb {
			hi, b, fb = b, a, fa
			a = hi - golden*(hi-lo)
			fa = logLoss(margins, positive, a)
		} else {
			lo, a, fa = a, b, fb
			b = lo + golden*(hi-lo)
			fb = logLoss(margins, positive, b)
		}
	}
	return 2 / (lo + hi)
}
