package report

import (
	"math"
	"strconv"
)

// scale maps values to positions in a chart.
type scale struct {
	low, high float64 // range of the values
	from, to  float64 // range of positions in the chart
}

func (s scale) at(v float64) float64 {
	return s.from + (v-s.low)/(s.high-s.low)*(s.to-s.from)
}

// span returns the range of the finite values, which is never empty.
func span(values ...[]float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, vs := range values {
		for _, v := range vs {
			if finite(v) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	switch {
	case low > high:
		return 0, 1
	case low == high:
		pad := max(math.Abs(low)/10, 1e-3)
		return low - pad, high + pad
	}
	return low, high
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// ticks returns about n round values within a range, in steps of 1, 2 or 5 times a power of ten.
func ticks(low, high float64, n int) []float64 {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/float64(n))))
	for _, k := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*k) <= float64(n) {
			step *= k
			break
		}
	}
	var out []float64
	first := math.Ceil(low/step - 1e-9)
	for i := range n + 2 { // limited, because adding 1 to a large float64 may change nothing
		if v := (first + float64(i)) * step; v <= high+step*1e-9 {
			out = append(out, v)
		}
	}
	return out
}

// label formats a tick without the rounding errors of binary fractions.
func label(v float64) string {
	if math.Abs(v) < 1e-12 {
		return "0"
	}
	if a := math.Abs(v); a >= 1e5 || a < 1e-3 {
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
	return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64)
}

// px formats a position in a chart.
func px(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }
