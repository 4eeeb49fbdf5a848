package metric

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Ranking is the scores of a binary task in descending order: every threshold
// at once.
type Ranking struct {
	// steps are the distinct scores, each with what a threshold at it predicts.
	steps                []Operating
	positives, negatives int
}

// Operating is a threshold and the predictions at it: a score of at least
// Threshold is positive.
type Operating struct {
	Threshold float64 `json:"threshold"`
	Confusion
}

// Rank sorts scores. A score that is NaN, or a different number of scores and
// labels, is an error.
func Rank(scores []float64, positive []bool) (*Ranking, error) {
	if len(scores) != len(positive) {
		return nil, fmt.Errorf("metric: %d scores for %d labels", len(scores), len(positive))
	}
	order := make([]int, len(scores))
	r := &Ranking{}
	for i, s := range scores {
		if math.IsNaN(s) {
			return nil, fmt.Errorf("metric: score %d is not a number", i)
		}
		order[i] = i
		if positive[i] {
			r.positives++
		}
	}
	r.negatives = len(scores) - r.positives
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	c := Confusion{TN: r.negatives, FN: r.positives}
	for k, i := range order {
		if positive[i] {
			c.TP, c.FN = c.TP+1, c.FN-1
		} else {
			c.FP, c.TN = c.FP+1, c.TN-1
		}
		// Ties cross the threshold together.
		if k+1 == len(order) || scores[order[k+1]] != scores[i] {
			r.steps = append(r.steps, Operating{scores[i], c})
		}
	}
	return r, nil
}

// Steps are the operating points at each distinct score, the strictest first.
func (r *Ranking) Steps() []Operating { return r.steps }

// Prevalence is the share of positives; NaN without examples.
func (r *Ranking) Prevalence() float64 {
	return float64(r.positives) / float64(r.positives+r.negatives)
}

// ROCAUC is the area under the receiver operating characteristic: the chance that a
// positive is ranked above a negative, ties counting half (Fawcett 2006). NaN unless both
// classes occur.
func (r *Ranking) ROCAUC() float64 {
	if r.positives == 0 || r.negatives == 0 {
		return math.NaN()
	}
	area, last := 0.0, Confusion{}
	for _, s := range r.steps {
		area += float64(s.FP-last.FP) * float64(s.TP+last.TP) / 2
		last = s.Confusion
	}
	return area / float64(r.positives) / float64(r.negatives)
}

// AveragePrecision is the area under the precision-recall curve as the sum of
// each gain in recall times the precision there: no line is drawn between
// points, which would overestimate (Davis and Goadrich 2006). NaN without
// positives.
func (r *Ranking) AveragePrecision() float64 {
	if r.positives == 0 {
		return math.NaN()
	}
	area, last := 0.0, 0
	for _, s := range r.steps {
		area += float64(s.TP-last) * s.Precision()
		last = s.TP
	}
	return area / float64(r.positives)
}

// At is the operating point of any threshold.
func (r *Ranking) At(threshold float64) Operating {
	n, _ := slices.BinarySearchFunc(r.steps, threshold, func(s Operating, t float64) int {
		if s.Threshold >= t {
			return -1
		}
		return 1
	})
	if n == 0 {
		return Operating{threshold, Confusion{TN: r.negatives, FN: r.positives}}
	}
	return Operating{threshold, r.steps[n-1].Confusion}
}

// Sweep returns n operating points at thresholds spread evenly over [0, 1].
func (r *Ranking) Sweep(n int) []Operating {
	out := make([]Operating, n)
	for i := range out {
		out[i] = r.At(float64(i) / float64(max(1, n-1)))
	}
	return out
}

// BestF1 is the operating point with the highest F1, the strictest of equals;
// ok is false without examples.
func (r *Ranking) BestF1() (best Operating, ok bool) {
	return r.best(func(c Confusion) (float64, bool) { return c.F1(), true })
}

// ForPrecision is the operating point with the highest recall among those
// whose precision is at least p, the strictest of equals; ok is false when no
// threshold with a true positive reaches it.
func (r *Ranking) ForPrecision(p float64) (best Operating, ok bool) {
	return r.best(func(c Confusion) (float64, bool) { return c.Recall(), c.TP > 0 && c.Precision() >= p })
}

func (r *Ranking) best(value func(Confusion) (float64, bool)) (best Operating, ok bool) {
	top := math.Inf(-1)
	for _, s := range r.steps {
		if v, allowed := value(s.Confusion); allowed && v > top {
			best, top, ok = s, v, true
		}
	}
	return best, ok
}
