package metric

import (
	"fmt"
	"math"
	"slices"
)

// Regression sums up predictions of a quantity, in its unit. Errors are predicted
// minus true.
type Regression struct {
	N    int     `json:"num_samples"`
	MAE  float64 `json:"mae"`
	MSE  float64 `json:"mse"`
	RMSE float64 `json:"rmse"`
	// MAPE is the mean of |error/truth| in percent over the truths that are not
	// 0; NaN without any.
	MAPE float64 `json:"mape"`
	// R2 is 1 - sum(error^2)/sum((truth - their mean)^2): NaN if the truths are all the
	// same, negative for predictions worse than their mean.
	R2 float64 `json:"r2"`
	// MeanError is the bias, StdError the deviation of the errors around it.
	MeanError float64 `json:"mean_error"`
	StdError  float64 `json:"std_error"`
	// Quantiles of |error| at ErrorQuantiles.
	Quantiles [len(ErrorQuantiles)]float64 `json:"absolute_error_quantiles"`
	// Spread is the deviation of the predictions over that of the truths: far
	// below 1 the model hedges, near 0 it has collapsed to a constant.
	Spread         float64  `json:"spread"`
	PredictedRange Interval `json:"prediction_range"`
	TrueRange      Interval `json:"true_range"`
}

// ErrorQuantiles are the quantiles that a Regression has.
var ErrorQuantiles = [...]float64{0.25, 0.5, 0.75, 0.9, 0.95}

// Regress compares predictions with truths, in pairs.
func Regress(predicted, truth []float64) (r Regression, err error) {
	n := len(truth)
	if n == 0 || len(predicted) != n {
		return r, fmt.Errorf("metric: %d predictions of %d truths; want the same number, at least one", len(predicted), n)
	}
	for i := range truth {
		if x := predicted[i] + truth[i]; math.IsNaN(x) || math.IsInf(x, 0) {
			return r, fmt.Errorf("metric: prediction %d is %v of %v; want finite numbers", i, predicted[i], truth[i])
		}
	}
	r.N = n
	errors, absolute := make([]float64, n), make([]float64, n)
	relative, relatives := 0.0, 0
	for i, t := range truth {
		e := predicted[i] - t
		errors[i], absolute[i] = e, math.Abs(e)
		r.MSE += e * e / float64(n)
		if t != 0 {
			relative += math.Abs(e / t)
			relatives++
		}
	}
	r.MAE, _ = deviation(absolute)
	r.RMSE = math.Sqrt(r.MSE)
	r.MAPE = 100 * relative / float64(relatives)
	r.MeanError, r.StdError = deviation(errors)
	_, spread := deviation(predicted)
	_, std := deviation(truth)
	r.R2, r.Spread = math.NaN(), math.NaN()
	if std > 0 {
		r.R2, r.Spread = 1-r.MSE/(std*std), spread/std
	}
	for k, q := range ErrorQuantiles {
		r.Quantiles[k] = Quantile(absolute, q)
	}
	r.PredictedRange = Interval{slices.Min(predicted), slices.Max(predicted)}
	r.TrueRange = Interval{slices.Min(truth), slices.Max(truth)}
	return r, nil
}

// deviation is the mean of values and their standard deviation (divided by n).
func deviation(values []float64) (mean, std float64) {
	for _, v := range values {
		mean += v / float64(len(values))
	}
	for _, v := range values {
		std += (v - mean) * (v - mean) / float64(len(values))
	}
	return mean, math.Sqrt(std)
}

// Skill is 1 - mse/reference: the share of a reference's mean square error
// that a model saves (Murphy 1988). 0 is no better, negative is worse; NaN for
// a reference without error.
func Skill(mse, reference float64) float64 {
	if reference == 0 {
		return math.NaN()
	}
	return 1 - mse/reference
}

// Conformal is the half-width of an interval around a prediction that contains the truth
// with at least a confidence: the ceil((n+1)*confidence)-th smallest absolute error of n
// calibration examples (Lei et al. 2018, split conformal). It is valid for further
// examples exchangeable with those, whatever the model; +Inf if n is too small.
func Conformal(absolute []float64, confidence float64) float64 {
	k := int(math.Ceil(float64(len(absolute)+1) * confidence))
	if k > len(absolute) {
		return math.Inf(1)
	}
	s := slices.Clone(absolute)
	slices.Sort(s)
	return s[max(1, k)-1]
}

// Coverage is the share of truths within half of their predictions; NaN without any.
func Coverage(predicted, truth []float64, half float64) float64 {
	in := 0
	for i, t := range truth {
		if math.Abs(predicted[i]-t) <= half {
			in++
		}
	}
	return float64(in) / float64(len(truth))
}
