package moderation

import (
	"iter"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/snug-ml/snug/train/metric"
)

// bagOfWords is the baseline: logistic regression with an L2 penalty on the presence of words and of pairs of
// neighboring words. A text classifier must beat it to be worth its cost (Wang and Manning 2012).
type bagOfWords struct {
	features map[string]int32
	weights  []float64 // the last one is the bias, which is not penalized
	// Penalty is the one in the grid with the best F1 on the validation texts, which favors the baseline.
	Penalty float64
}

// words returns the words and single punctuation marks of a text, in lower case.
func words(text string) []string {
	var out []string
	start := -1
	for i, r := range text {
		word := unicode.IsLetter(r) || unicode.IsDigit(r) || r == '\''
		if !word && start >= 0 {
			out = append(out, strings.ToLower(text[start:i]))
			start = -1
		}
		switch {
		case word && start < 0:
			start = i
		case !word && !unicode.IsSpace(r):
			out = append(out, string(r))
		}
	}
	if start >= 0 {
		out = append(out, strings.ToLower(text[start:]))
	}
	return out
}

// grams returns the words of a text and its pairs of neighboring words.
func grams(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		last := ""
		for _, word := range words(text) {
			if !yield(word) || last != "" && !yield(last+" "+word) {
				return
			}
			last = word
		}
	}
}

// bag returns the distinct features of a text; learn adds unknown ones to the vocabulary.
func (w *bagOfWords) bag(text string, learn bool) []int32 {
	var out []int32
	add := func(feature string) {
		id, ok := w.features[feature]
		if !ok {
			if !learn {
				return
			}
			id = int32(len(w.features))
			w.features[feature] = id
		}
		out = append(out, id)
	}
	for g := range grams(text) {
		add(g)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// margin returns the log odds of a bag.
func (w *bagOfWords) margin(bag []int32) float64 {
	m := w.weights[len(w.weights)-1]
	for _, f := range bag {
		m += w.weights[f]
	}
	return m
}

// trainBagOfWords fits the baseline to the training texts with the class weights, for each penalty of a grid,
// and keeps the best fit.
func trainBagOfWords(samples, valid []sample, weights [labels]float64) *bagOfWords {
	w := &bagOfWords{features: map[string]int32{}}
	bags := make([][]int32, len(samples))
	for i, s := range samples {
		bags[i] = w.bag(s.text, true)
	}
	w.weights = make([]float64, len(w.features)+1)
	best, bestF1 := bagOfWords{}, -1.0
	for _, penalty := range []float64{4, 1, 0.25, 1. / 16} { // each fit starts from the previous one
		w.fit(bags, samples, weights, penalty)
		s := w.score(valid)
		if f1 := metric.Count(s.Margins, s.Positive, 0).F1(); f1 > bestF1 {
			bestF1 = f1
			best = bagOfWords{w.features, slices.Clone(w.weights), penalty}
		}
	}
	return &best
}

// score returns the baseline's scores of texts.
func (w *bagOfWords) score(samples []sample) *predictions {
	s := &predictions{}
	for i, x := range samples {
		s.Margins = append(s.Margins, w.margin(w.bag(x.text, false)))
		s.Positive = append(s.Positive, x.positive)
		s.Index = append(s.Index, i)
	}
	return s
}

// fit minimizes the penalized log-likelihood
//
//	sum_i c_i log(1 + exp(-y_i m_i)) + penalty/2 |w|^2
//
// by L-BFGS (Nocedal 1980).
func (w *bagOfWords) fit(bags [][]int32, samples []sample, weights [labels]float64, penalty float64) {
	bias := len(w.weights) - 1
	objective := func(x, gradient []float64) float64 {
		at := bagOfWords{weights: x}
		sum := 0.0
		for i, v := range x {
			gradient[i] = 0
			if i != bias {
				sum += penalty / 2 * v * v
				gradient[i] = penalty * v
			}
		}
		for i, bag := range bags {
			y, c := -1.0, weights[0]
			if samples[i].positive {
				y, c = 1, weights[1]
			}
			m := y * at.margin(bag)
			sum += c * (max(-m, 0) + math.Log1p(math.Exp(-math.Abs(m))))
			g := -y * c * metric.Sigmoid(-m)
			for _, f := range bag {
				gradient[f] += g
			}
			gradient[bias] += g
		}
		return sum
	}
	minimize(w.weights, objective)
}
