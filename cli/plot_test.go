package cli

import (
	"math"
	"strings"
	"testing"

	"github.com/snug-ml/snug/train/checkpoint"
)

// TestDrawCurves: curves of any numbers are drawn; those that are not finite are left out.
func TestDrawCurves(t *testing.T) {
	h := checkpoint.History{}
	for u := range int64(10) {
		h.Add("falls", u, 9-float64(u))
		h.Add("flat", u, -3)
		h.Add("broken", u, math.NaN())
		h.Add("mixed", u, []float64{math.Inf(1), -5, math.NaN(), 2, math.Inf(-1)}[u%5])
	}
	top := func(drawing string) string { return strings.Split(drawing, "\n")[1] }
	if d := drawCurves(h, []string{"falls"}); !strings.HasPrefix(top(d), "         9 │⠁") || strings.Count(d, "\n") != plotHeight+3 {
		t.Errorf("a falling curve does not begin at the top:\n%s", d)
	}
	if d := drawCurves(h, []string{"falls", "mixed"}); !strings.Contains(d, "o") || !strings.Contains(d, "-5 │") {
		t.Errorf("the second curve is not drawn:\n%s", d)
	}
	if d := drawCurves(h, []string{"flat"}); !strings.Contains(d, "-2.5 │") {
		t.Errorf("a flat curve has no room around it:\n%s", d)
	}
	if d := drawCurves(h, []string{"broken"}); d != "broken: no value is finite\n" {
		t.Errorf("drawn: %q", d)
	}
	for name, want := range map[string]string{"falls": "██▇▆▅▄▃▂▁▁", "flat": "██████████", "broken": "▁", "mixed": "▁█▁█"} {
		y := values(h[name])
		low, high := limits(y)
		if got := sparkline(relative(y, low, high)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}
