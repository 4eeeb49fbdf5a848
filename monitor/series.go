package monitor

import (
	"math"
	"strconv"
)

// Number is a float64 whose JSON form is null where it is not finite, which charts
// draw as a gap.
type Number float64

// MarshalJSON writes a number or null.
func (n Number) MarshalJSON() ([]byte, error) {
	if !finite(float64(n)) {
		return []byte("null"), nil
	}
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 64), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Number) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*n = Number(math.NaN())
		return nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	*n = Number(f)
	return err
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Series is a curve. X are updates, or seconds since 1970 of what was sampled; a Y
// that is not finite is a gap.
type Series struct {
	Name  string   `json:"name"`           // such as loss, learning_rate, eval_loss, gpu_busy
	Unit  string   `json:"unit,omitempty"` // such as percent, bytes, tokens/s
	Panel string   `json:"panel"`          // series of a panel share an axis
	X     []Number `json:"x"`
	Y     []Number `json:"y"`
	// Points is how many there were before thinning, NotFinite how many of them are
	// not finite.
	Points    int `json:"points"`
	NotFinite int `json:"not_finite,omitempty"`
}

// Thin keeps at most 2*width+2 of n points with ascending x: the first, the last, and
// in each of width parts of the range of x the lowest and the highest, in their order.
// So no spike is lost. A part without a finite value becomes one gap. Width 0 keeps
// all.
func Thin(n, width int, point func(i int) (x, y float64)) (x, y []Number, notFinite int) {
	add := func(i int) {
		px, py := point(i)
		x, y = append(x, Number(px)), append(y, Number(py))
	}
	all := width <= 0 || n <= 2*width
	var first, last float64
	if n > 0 {
		first, _ = point(0)
		last, _ = point(n - 1)
	}
	part, low, high, gap := -1, -1, -1, -1
	var lowest, highest float64
	flush := func() {
		switch {
		case low < 0 && gap >= 0:
			add(gap)
		case low < 0:
		case low == high:
			add(low)
		default:
			add(min(low, high))
			add(max(low, high))
		}
		low, high, gap = -1, -1, -1
	}
	for i := range n {
		px, py := point(i)
		ok := finite(py)
		if !ok {
			notFinite++
		}
		if all || i == 0 || i == n-1 {
			if i == n-1 {
				flush()
			}
			add(i)
			continue
		}
		if at := bucket(px, first, last, width); at != part {
			flush()
			part = at
		}
		switch {
		case !ok:
			gap = i
		case low < 0:
			low, high, lowest, highest = i, i, py, py
		case py < lowest:
			low, lowest = i, py
		case py > highest:
			high, highest = i, py
		}
	}
	return x, y, notFinite
}

// bucket is the part of a range that contains x. Where the clock went backward x may
// be outside.
func bucket(x, first, last float64, width int) int {
	if last <= first {
		return 0
	}
	return min(max(int((x-first)/(last-first)*float64(width)), 0), width-1)
}

// Smooth is the exponential moving average of a series, corrected for its start:
// weight is what stays of the average at each point (0 changes nothing). Gaps stay
// gaps.
func Smooth(y []Number, weight float64) []Number {
	out := make([]Number, len(y))
	mean, norm := 0.0, 0.0
	for i, v := range y {
		if !finite(float64(v)) {
			out[i] = v
			continue
		}
		mean = weight*mean + (1-weight)*float64(v)
		norm = weight*norm + (1 - weight)
		out[i] = Number(mean / norm)
	}
	return out
}
