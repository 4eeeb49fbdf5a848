package moderation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/train/metric"
)

// TestMinimize: minimize finds the minimum of a badly scaled quadratic.
func TestMinimize(t *testing.T) {
	x := []float64{5, -3, 8, 1}
	scales := []float64{1, 100, 0.01, 10}
	if err := minimize(t.Context(), x, func(x, g []float64) float64 {
		sum := 0.0
		for i := range x {
			d := x[i] - float64(i)
			sum += scales[i] * d * d / 2
			g[i] = scales[i] * d
		}
		return sum
	}); err != nil {
		t.Fatal(err)
	}
	for i, v := range x {
		if math.Abs(v-float64(i)) > 0.02 {
			t.Errorf("coordinate %d is %v", i, v)
		}
	}
}

// TestBagOfWordsIsFitted: the fit is at the minimum, so the gradient by finite differences is zero there.
func TestBagOfWordsIsFitted(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var samples []sample
	vocabulary := []string{"good", "bad", "room", "night", "park"}
	for range 80 {
		text, score := "", 0.0
		for range 4 {
			k := rng.IntN(len(vocabulary))
			text += vocabulary[k] + " "
			score += float64(k) - 2
		}
		samples = append(samples, sample{text: text, positive: score+rng.NormFloat64()*2 > 0})
	}
	w := &bagOfWords{}
	weights := [labels]float64{0.7, 1.9}
	c := w.learn(samples, weights)
	if err := w.fit(t.Context(), c, 0.5); err != nil {
		t.Fatal(err)
	}
	objective := func() float64 {
		sum := 0.0
		for _, v := range w.weights[:len(w.weights)-1] {
			sum += 0.25 * v * v
		}
		for i, s := range samples {
			m := w.margin(c.bags.of(i))
			if !s.positive {
				m = -m
			}
			sum += weights[class(s.positive)] * math.Log1p(math.Exp(-m))
		}
		return sum
	}
	const h = 1e-4
	for i := range w.weights {
		w.weights[i] += h
		up := objective()
		w.weights[i] -= 2 * h
		down := objective()
		w.weights[i] += h
		if g := (up - down) / (2 * h); math.Abs(g) > 2e-3 {
			t.Errorf("gradient of weight %d is %v at the fit", i, g)
		}
	}
}

// TestBagOfWordsRepeats: the fit has the same bits on any number of processors, and stops when its context is done.
func TestBagOfWordsRepeats(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	var samples []sample
	for range 700 {
		var text strings.Builder
		for range 20 {
			fmt.Fprintf(&text, "w%d ", rng.IntN(3000))
		}
		samples = append(samples, sample{text: text.String(), positive: rng.IntN(3) == 0})
	}
	fit := func(ctx context.Context, processors int) ([]float64, error) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		w := &bagOfWords{}
		err := w.fit(ctx, w.learn(samples, [labels]float64{1, 2}), 0.25)
		return w.weights, err
	}
	one, err := fit(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for processors := 2; processors < 6; processors++ {
		if more, err := fit(t.Context(), processors); err != nil || !slices.Equal(one, more) {
			t.Errorf("%d processors: other weights than one (%v)", processors, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := fit(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("a fit whose context is done returns %v", err)
	}
}

// TestBagOfWordsLearns: the baseline learns from words, and from pairs where single words are uninformative.
func TestBagOfWordsLearns(t *testing.T) {
	var samples []sample
	for range 20 {
		for text, positive := range map[string]bool{"not good at all": true, "good, not bad": false, "bad it is": true, "all is good": false} {
			samples = append(samples, sample{text: text, positive: positive})
		}
	}
	w, err := trainBagOfWords(t.Context(), samples, samples, [labels]float64{1, 1}, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	s := w.score(samples)
	if f1 := metric.Count(s.Margins, s.Positive, 0).F1(); f1 != 1 {
		t.Errorf("F1 %v on what it was trained on", f1)
	}
}
