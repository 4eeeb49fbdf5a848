package metric

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Quantile is the q-th quantile (0 to 1) of values in any order, linear between neighbors
// (type 7 of Hyndman and Fan 1996, the most common one). NaN without values.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Clone(values)
	slices.Sort(s)
	at := min(1, max(0, q)) * float64(len(s)-1)
	i := int(at)
	if i == len(s)-1 {
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

// Interval is a range that contains a figure with a stated confidence.
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Bootstrap is the percentile interval (Efron 1979) of a figure of n examples: stat
// is called on rounds samples of n indexes drawn with replacement. The same seed
// gives the same interval. Rounds whose figure is NaN are left out.
func Bootstrap(n, rounds int, seed uint64, confidence float64, stat func(index []int) float64) Interval {
	rng := rand.New(rand.NewPCG(seed, 0))
	index := make([]int, n)
	var values []float64
	for range rounds {
		for i := range index {
			index[i] = rng.IntN(n)
		}
		if v := stat(index); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	tail := (1 - confidence) / 2
	return Interval{Quantile(values, tail), Quantile(values, 1-tail)}
}

// Wilson is the 95 % interval of a share, k of n seen (Wilson 1927): it stays
// within [0, 1] and is valid for few examples. [0, 1] without any.
func Wilson(k, n int) Interval {
	if n == 0 {
		return Interval{0, 1}
	}
	const z = 1.959963984540054
	p, m := float64(k)/float64(n), float64(n)
	middle := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return Interval{max(0, middle-half), min(1, middle+half)}
}
