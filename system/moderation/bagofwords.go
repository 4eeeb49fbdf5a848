package moderation

import (
	"context"
	"iter"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/snug-ml/snug/internal/size"
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

// lists are lists of numbers, one after the other.
type lists struct {
	ends  []int // of each list
	items []int32
}

// of returns list k.
func (l *lists) of(k int) []int32 {
	start := 0
	if k > 0 {
		start = l.ends[k-1]
	}
	return l.items[start:l.ends[k]]
}

// reversed returns for each number below n the lists that it is in.
func (l *lists) reversed(n int) *lists {
	r := &lists{make([]int, n), make([]int32, len(l.items))}
	for _, x := range l.items {
		r.ends[x]++
	}
	at := 0
	for x, count := range r.ends {
		r.ends[x] = at // for now where its list begins, and then where the next item goes
		at += count
	}
	for k := range l.ends {
		for _, x := range l.of(k) {
			r.items[r.ends[x]] = int32(k)
			r.ends[x]++
		}
	}
	return r
}

// corpus is what the baseline is fitted to.
type corpus struct {
	samples []sample
	weights [labels]float64 // of the classes
	bags    *lists          // the features of each text
	texts   *lists          // the texts that each feature is in
}

// learn makes the features of texts known and returns the corpus of the texts.
func (w *bagOfWords) learn(samples []sample, weights [labels]float64) *corpus {
	w.features = map[string]int32{}
	c := &corpus{samples: samples, weights: weights, bags: &lists{}}
	for _, s := range samples {
		c.bags.items = append(c.bags.items, w.bag(s.text, true)...)
		c.bags.ends = append(c.bags.ends, len(c.bags.items))
	}
	c.texts = c.bags.reversed(len(w.features))
	w.weights = make([]float64, len(w.features)+1)
	return c
}

// trainBagOfWords fits the baseline to the training texts with the class weights, for each penalty of a grid,
// and keeps the best fit.
func trainBagOfWords(ctx context.Context, samples, valid []sample, weights [labels]float64, log func(string, ...any)) (*bagOfWords, error) {
	w := &bagOfWords{}
	c := w.learn(samples, weights)
	log("data: fitting the bag of words, the baseline (decision.baseline), with a weight for each of %s and pairs of words", size.Of(len(w.features), "word"))
	best, bestF1 := bagOfWords{}, -1.0
	for _, penalty := range []float64{4, 1, 0.25, 1. / 16} { // each fit starts from the previous one
		if err := w.fit(ctx, c, penalty); err != nil {
			return nil, err
		}
		s := w.score(valid)
		if f1 := metric.Count(s.Margins, s.Positive, 0).F1(); f1 > bestF1 {
			bestF1 = f1
			best = bagOfWords{w.features, slices.Clone(w.weights), penalty}
		}
	}
	return &best, nil
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
// by L-BFGS (Nocedal 1980), until ctx is done.
func (w *bagOfWords) fit(ctx context.Context, c *corpus, penalty float64) error {
	const few = 256 // texts or features of a block: the first features are in most texts
	bias := len(w.weights) - 1
	losses, slopes := make([]float64, len(c.samples)), make([]float64, len(c.samples)) // of each text
	objective := func(x, gradient []float64) float64 {
		at := bagOfWords{weights: x}
		blocks(len(c.samples), few, func(_, from, to int) {
			for i := from; i < to; i++ {
				y, weight := -1.0, c.weights[0]
				if c.samples[i].positive {
					y, weight = 1, c.weights[1]
				}
				m := y * at.margin(c.bags.of(i))
				e := math.Exp(-math.Abs(m))
				losses[i] = weight * (max(-m, 0) + math.Log1p(e))
				wrong := 1 / (1 + e) // the probability of the other class
				if m > 0 {
					wrong *= e
				}
				slopes[i] = -y * weight * wrong
			}
		})
		sum := total(bias, few, func(from, to int) (sum float64) {
			for f := from; f < to; f++ {
				v := x[f]
				sum += penalty / 2 * v * v
				g := penalty * v
				for _, i := range c.texts.of(f) {
					g += slopes[i]
				}
				gradient[f] = g
			}
			return sum
		})
		gradient[bias] = 0
		for i, loss := range losses {
			sum += loss
			gradient[bias] += slopes[i]
		}
		return sum
	}
	return minimize(ctx, w.weights, objective)
}
