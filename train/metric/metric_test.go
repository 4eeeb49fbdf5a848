package metric

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > tolerance {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func rank(t *testing.T, scores []float64, positive []bool) *Ranking {
	t.Helper()
	r, err := Rank(scores, positive)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestConfusion(t *testing.T) {
	c := Count([]float64{.9, .5, .4, .6, .1}, []bool{true, true, true, false, false}, .5)
	if want := (Confusion{TP: 2, FP: 1, TN: 1, FN: 1}); c != want {
		t.Fatalf("got %+v, want %+v", c, want)
	}
	near(t, "accuracy", c.Accuracy(), .6, 0)
	near(t, "precision", c.Precision(), 2./3, 1e-15)
	near(t, "recall", c.Recall(), 2./3, 1e-15)
	near(t, "F1", c.F1(), 2./3, 1e-15)
	near(t, "false positive rate", c.FalsePositiveRate(), .5, 0)
	var none Confusion
	for _, v := range []float64{none.Accuracy(), none.Precision(), none.Recall(), none.F1(), none.FalsePositiveRate()} {
		near(t, "a ratio of nothing", v, 0, 0)
	}
}

func TestMatrix(t *testing.T) {
	m := NewMatrix("a", "b", "c")
	for _, p := range [][2]int{{0, 0}, {0, 0}, {0, 1}, {1, 1}, {2, 1}, {2, 2}, {2, 0}} {
		if err := m.Add(p[0], p[1]); err != nil {
			t.Fatal(err)
		}
	}
	if c, want := m.Class(0), (Confusion{TP: 2, FP: 1, TN: 3, FN: 1}); c != want {
		t.Errorf("class a: %+v, want %+v", c, want)
	}
	near(t, "accuracy", m.Accuracy(), 4./7, 1e-15)
	near(t, "macro F1", m.MacroF1(), (4./6+2./4+2./4)/3, 1e-15)
	if m.Add(3, 0) == nil || m.Add(0, -1) == nil {
		t.Error("a class that does not exist was counted")
	}
	two := Confusion{TP: 4, FP: 3, TN: 2, FN: 1}.Matrix("no", "yes")
	if c := two.Class(1); c != (Confusion{TP: 4, FP: 3, TN: 2, FN: 1}) {
		t.Errorf("the matrix of a confusion has %+v for its positive class", c)
	}
}

// The values in scikit-learn's documentation of roc_auc_score and
// average_precision_score.
func TestRankingKnown(t *testing.T) {
	r := rank(t, []float64{.1, .4, .35, .8}, []bool{false, false, true, true})
	near(t, "ROC AUC", r.ROCAUC(), .75, 1e-15)
	near(t, "average precision", r.AveragePrecision(), 5./6, 1e-15)
	near(t, "prevalence", r.Prevalence(), .5, 0)
}

func TestRankingTies(t *testing.T) {
	r := rank(t, []float64{.5, .5, .5, .5}, []bool{true, false, true, false})
	if n := len(r.Steps()); n != 1 {
		t.Errorf("%d operating points for one score", n)
	}
	near(t, "ROC AUC of constant scores", r.ROCAUC(), .5, 0)
	near(t, "average precision of constant scores", r.AveragePrecision(), .5, 0)
}

func TestRankingRefuses(t *testing.T) {
	if _, err := Rank([]float64{math.NaN()}, []bool{true}); err == nil {
		t.Error("a score that is no number was ranked")
	}
	if _, err := Rank([]float64{1}, nil); err == nil {
		t.Error("scores without labels were ranked")
	}
	r := rank(t, []float64{1, 2}, []bool{true, true})
	near(t, "ROC AUC of one class", r.ROCAUC(), math.NaN(), 0)
	r = rank(t, []float64{1, 2}, []bool{false, false})
	near(t, "average precision without positives", r.AveragePrecision(), math.NaN(), 0)
	if _, ok := r.ForPrecision(.1); ok {
		t.Error("a precision was reached without positives")
	}
}

// Every figure of a ranking against its definition, on scores with ties.
func TestRankingAgainstDefinitions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		n := 2 + rng.IntN(60)
		scores, positive := make([]float64, n), make([]bool, n)
		for i := range scores {
			scores[i], positive[i] = float64(rng.IntN(12))/11, rng.IntN(3) == 0
		}
		positive[0], positive[1] = true, false
		r := rank(t, scores, positive)
		wins, pairs := 0.0, 0.0
		for i := range n {
			for j := range n {
				if !positive[i] || positive[j] {
					continue
				}
				pairs++
				switch {
				case scores[i] > scores[j]:
					wins++
				case scores[i] == scores[j]:
					wins += .5
				}
			}
		}
		near(t, "ROC AUC", r.ROCAUC(), wins/pairs, 1e-12)
		for _, s := range r.Sweep(23) {
			if c := Count(scores, positive, s.Threshold); c != s.Confusion {
				t.Fatalf("at %v: %+v, want %+v", s.Threshold, s.Confusion, c)
			}
		}
		top, recall := 0.0, -1.0
		for _, s := range scores {
			c := Count(scores, positive, s)
			top = max(top, c.F1())
			if c.TP > 0 && c.Precision() >= .6 {
				recall = max(recall, c.Recall())
			}
		}
		best, _ := r.BestF1()
		near(t, "best F1", best.F1(), top, 1e-15)
		at, ok := r.ForPrecision(.6)
		if ok != (recall >= 0) || ok && (at.Recall() != recall || at.Precision() < .6) {
			t.Fatalf("threshold for precision 0.6: %+v, %v; the best recall is %v", at, ok, recall)
		}
	}
}

func TestCalibration(t *testing.T) {
	probs := []float64{0, .1, .9, 1}
	positive := []bool{false, true, true, true}
	bins := Reliability(probs, positive, 2)
	if bins[0].Count != 2 || bins[1].Count != 2 {
		t.Fatalf("bins %+v", bins)
	}
	near(t, "predicted", bins[0].Predicted, .05, 1e-15)
	near(t, "observed", bins[0].Observed, .5, 0)
	near(t, "calibration error", ECE(bins), (2*.45+2*.05)/4, 1e-15)
	near(t, "Brier score", Brier(probs, positive), (0+.81+.01+0)/4, 1e-15)
	near(t, "log loss", LogLoss([]float64{0, 2}, []bool{true, false}), (math.Ln2+math.Log(1+math.Exp(2)))/2, 1e-12)
	if v := LogLoss([]float64{-1e4}, []bool{true}); v != 1e4 {
		t.Errorf("log loss of a large margin is %v", v)
	}
}

// Margins whose outcomes are drawn from their own probabilities need no
// scaling; those multiplied by k need a temperature of k.
func TestTemperature(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const n = 20000
	margins, positive := make([]float64, n), make([]bool, n)
	for i := range margins {
		margins[i] = 2 * rng.NormFloat64()
		positive[i] = rng.Float64() < Sigmoid(margins[i])
	}
	near(t, "temperature of calibrated margins", Temperature(margins, positive), 1, .05)
	for i := range margins {
		margins[i] *= 3
	}
	near(t, "temperature of margins three times too large", Temperature(margins, positive), 3, .15)
	near(t, "temperature of nothing", Temperature(nil, nil), 1, 0)
	near(t, "temperature of perfect margins", Temperature([]float64{1, -1}, []bool{true, false}), minTemperature, 1e-6)
}

func TestQuantile(t *testing.T) {
	v := []float64{3, 1, 2, 4}
	near(t, "minimum", Quantile(v, 0), 1, 0)
	near(t, "maximum", Quantile(v, 1), 4, 0)
	near(t, "median", Quantile(v, .5), 2.5, 0)
	near(t, "a third", Quantile(v, 1./3), 2, 1e-15)
	near(t, "a quantile of nothing", Quantile(nil, .5), math.NaN(), 0)
	if !slices.Equal(v, []float64{3, 1, 2, 4}) {
		t.Error("the values were reordered")
	}
}

// The interval of a mean covers the truth about as often as it claims.
func TestBootstrapCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	hit := 0
	const trials, n = 200, 60
	for trial := range trials {
		x := make([]float64, n)
		for i := range x {
			x[i] = rng.NormFloat64()
		}
		in := Bootstrap(n, 300, uint64(trial), .9, func(index []int) float64 {
			sum := 0.0
			for _, i := range index {
				sum += x[i]
			}
			return sum / n
		})
		if in.Low <= 0 && 0 <= in.High {
			hit++
		}
	}
	if share := float64(hit) / trials; share < .82 || share > .96 {
		t.Errorf("90 %% intervals cover the truth in %.0f %% of trials", 100*share)
	}
}

// Wilson's interval for 10 of 10 and for 1 of 20, by its formula.
func TestWilson(t *testing.T) {
	near(t, "low end of 10 of 10", Wilson(10, 10).Low, .7225, 1e-4)
	near(t, "high end of 10 of 10", Wilson(10, 10).High, 1, 1e-12)
	in := Wilson(1, 20)
	near(t, "low end of 1 of 20", in.Low, .0089, 1e-4)
	near(t, "high end of 1 of 20", in.High, .2361, 1e-4)
	if Wilson(0, 0) != (Interval{0, 1}) {
		t.Error("nothing seen says something")
	}
}
