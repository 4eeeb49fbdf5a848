package metric

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestRegress(t *testing.T) {
	// By hand: errors 0.5, -0.5, 0, 1.
	r, err := Regress([]float64{1.5, 1.5, 3, 5}, []float64{1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "mae", r.MAE, 0.5, 1e-12)
	near(t, "mse", r.MSE, 0.375, 1e-12)
	near(t, "rmse", r.RMSE, math.Sqrt(0.375), 1e-12)
	near(t, "mape", r.MAPE, 25, 1e-12)
	near(t, "r2", r.R2, 1-1.5/5, 1e-12)
	near(t, "mean error", r.MeanError, 0.25, 1e-12)
	near(t, "std error", r.StdError, math.Sqrt(0.375-0.0625), 1e-12)
	near(t, "median error", r.Quantiles[1], 0.5, 1e-12)
	near(t, "spread", r.Spread, math.Sqrt(2.0625/1.25), 1e-12)
	if r.PredictedRange != (Interval{1.5, 5}) || r.TrueRange != (Interval{1, 4}) || r.N != 4 {
		t.Errorf("ranges %v and %v of %d", r.PredictedRange, r.TrueRange, r.N)
	}
	// The mean of the truths has no skill, and an R2 of 0.
	mean, err := Regress([]float64{2.5, 2.5, 2.5, 2.5}, []float64{1, 2, 3, 4})
	if err != nil || math.Abs(mean.R2) > 1e-12 || mean.Spread != 0 {
		t.Errorf("predicting the mean: R2 %v, spread %v, %v", mean.R2, mean.Spread, err)
	}
	near(t, "skill", Skill(r.MSE, mean.MSE), r.R2, 1e-12)
}

func TestRegressEdges(t *testing.T) {
	r, err := Regress([]float64{1, 0}, []float64{0, 0})
	if err != nil || !math.IsNaN(r.R2) || !math.IsNaN(r.Spread) || !math.IsNaN(r.MAPE) {
		t.Errorf("truths all 0: %+v, %v", r, err)
	}
	for _, bad := range [][2][]float64{{nil, nil}, {{1}, {1, 2}}, {{math.NaN()}, {1}}, {{1}, {math.Inf(1)}}} {
		if _, err := Regress(bad[0], bad[1]); err == nil {
			t.Errorf("%v of %v: no error", bad[0], bad[1])
		}
	}
	if !math.IsNaN(Skill(1, 0)) || !math.IsNaN(Coverage(nil, nil, 1)) {
		t.Error("ratios without a denominator are numbers")
	}
}

// TestConformalCovers draws exchangeable errors: intervals have their coverage on
// average over calibration sets, and never much more.
func TestConformalCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, confidence := range []float64{0.5, 0.9, 0.95} {
		const n, rounds = 99, 400
		sum := 0.0
		for range rounds {
			calibration := make([]float64, n)
			for i := range calibration {
				calibration[i] = math.Abs(rng.NormFloat64())
			}
			half := Conformal(calibration, confidence)
			sum += math.Erf(half / math.Sqrt2) // of the errors beyond
		}
		near(t, "coverage", sum/rounds, confidence, 0.01)
	}
	if !math.IsInf(Conformal([]float64{1, 2, 3}, 0.9), 1) {
		t.Error("three examples promise 90 %")
	}
	if got := Conformal([]float64{3, 1, 2, 4}, 0.5); got != 3 { // ceil(5*0.5) = 3rd
		t.Errorf("half-width %v, want 3", got)
	}
	near(t, "coverage", Coverage([]float64{0, 0, 0, 0}, []float64{0.5, -1, 1, 2}, 1), 0.75, 0)
}
