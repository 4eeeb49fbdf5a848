package web

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/snug-ml/snug/monitor"
)

// curve is a series whose JSON is quick to write: y has seven digits, more than pixels
// can show.
type curve struct{ monitor.Series }

// drawn returns the series that have points.
func drawn(list []monitor.Series) (out []curve) {
	for _, s := range list {
		if len(s.X) > 0 {
			out = append(out, curve{s})
		}
	}
	return out
}

// MarshalJSON writes what the series itself would, with fewer digits.
func (c curve) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, 200+20*len(c.X))
	for _, f := range []struct {
		key   string
		value any
	}{{"name", c.Name}, {"unit", c.Unit}, {"panel", c.Panel}, {"points", c.Points}, {"not_finite", c.NotFinite}} {
		raw, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		out = append(strconv.AppendQuote(append(out, ','), f.key), ':')
		out = append(out, raw...)
	}
	out[0] = '{'
	out = numbers(append(out, `,"x":[`...), c.X, func(x float64) float64 { return x })
	out = numbers(append(out, `],"y":[`...), c.Y, rounded)
	return append(out, "]}"...), nil
}

// numbers writes a list; numbers that are not finite are null.
func numbers(out []byte, list []monitor.Number, as func(x float64) float64) []byte {
	for i, x := range list {
		if i > 0 {
			out = append(out, ',')
		}
		if x := as(float64(x)); math.IsNaN(x) || math.IsInf(x, 0) {
			out = append(out, "null"...)
		} else {
			out = strconv.AppendFloat(out, x, 'g', -1, 64)
		}
	}
	return out
}

// rounded returns x with seven digits.
func rounded(x float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	digits := 6 - int(math.Floor(math.Log10(math.Abs(x))))
	switch {
	case digits < -300 || digits > 300:
		return x
	case digits < 0:
		p := math.Pow10(-digits)
		return math.Round(x/p) * p
	}
	p := math.Pow10(digits)
	return math.Round(x*p) / p
}
