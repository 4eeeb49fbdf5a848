package monitor

import (
	"math"
	"strconv"
)

// Number is a float64 whose JSON form is null if it is not finite, which charts draw as a
// gap.
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

// Series is a curve. X are updates, or seconds since 1970 for samples; a Y that is not
// finite is a gap.
type Series struct {
	Name  string   `json:"name"`           // such as loss, learning_rate, eval_loss, gpu_busy
	Unit  string   `json:"unit,omitempty"` // such as percent, bytes, tokens/s
	Panel string   `json:"panel"`          // series of a panel share an axis
	X     []Number `json:"x"`
	Y     []Number `json:"y"`
	// Points is how many points there were before thinning, NotFinite how many of them
	// are not finite.
	Points    int `json:"points"`
	NotFinite int `json:"not_finite,omitempty"`
}

// Thin keeps at most 2*width+2 of n points with ascending x: the first, the last, and in
// each of width parts of the range of x the lowest and the highest, in their order. This
// way no spike is lost. A part without a finite value becomes one gap. Width 0 keeps all.
func Thin(n, width int, point func(i int) (x, y float64)) (x, y []Number, notFinite int) {
	t := thin(n, width, func(i int) float64 { x, _ := point(i); return x }, []func(i int) float64{func(i int) float64 { _, y := point(i); return y }})[0]
	return t.x, t.y, t.notFinite
}

// thinner keeps points of a series.
type thinner struct {
	x, y      []Number
	notFinite int
	told      bool // a value is a number, or infinite

	// Lowest and highest point of the part being read, and its last point that is not
	// finite; index -1: there is none.
	low, high, gap point
}

type point struct {
	index int
	x, y  float64
}

var noPoint = point{index: -1}

// thin is Thin for several series with the same x, which are read in parallel: the data
// of a long run far exceeds a processor's caches.
func thin(n, width int, x func(i int) float64, ys []func(i int) float64) []thinner {
	out := make([]thinner, len(ys))
	for k := range out {
		out[k].low, out[k].high, out[k].gap = noPoint, noPoint, noPoint
	}
	all := width <= 0 || n <= 2*width
	part := -1
	var first, last float64
	if n > 0 {
		first, last = x(0), x(n-1)
	}
	for i := range n {
		p := point{index: i, x: x(i)}
		keep := all || i == 0 || i == n-1
		next := part
		if !keep {
			next = bucket(p.x, first, last, width)
		}
		if next != part || i == n-1 {
			for k := range out {
				out[k].flush()
			}
			part = next
		}
		for k, y := range ys {
			p.y = y(i)
			out[k].take(p, keep)
		}
	}
	return out
}

// take adds the next point of the part.
func (t *thinner) take(p point, keep bool) {
	ok := finite(p.y)
	if ok {
		t.told = true
	} else {
		t.notFinite++
		t.told = t.told || !math.IsNaN(p.y)
	}
	switch {
	case keep:
		t.add(p)
	case !ok:
		t.gap = p
	case t.low.index < 0:
		t.low, t.high = p, p
	case p.y < t.low.y:
		t.low = p
	case p.y > t.high.y:
		t.high = p
	}
}

func (t *thinner) add(p point) { t.x, t.y = append(t.x, Number(p.x)), append(t.y, Number(p.y)) }

// flush ends a part.
func (t *thinner) flush() {
	switch low, high := t.low, t.high; {
	case low.index < 0 && t.gap.index >= 0:
		t.add(t.gap)
	case low.index < 0:
		return
	case low.index == high.index:
		t.add(low)
	case low.index < high.index:
		t.add(low)
		t.add(high)
	default:
		t.add(high)
		t.add(low)
	}
	t.low, t.high, t.gap = noPoint, noPoint, noPoint
}

// bucket is the part of a range that contains x. If the clock went backward, x may be
// outside.
func bucket(x, first, last float64, width int) int {
	if last <= first {
		return 0
	}
	return min(max(int((x-first)/(last-first)*float64(width)), 0), width-1)
}

// Smooth is the exponential moving average of a series, corrected for its start: weight
// is the share of the average kept at each point (0 changes nothing). Gaps stay gaps.
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
