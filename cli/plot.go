package cli

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train/checkpoint"
)

type ckptPlotCmd struct {
	state
	Curve []string `help:"Curve to draw in full (default: the training loss with the held-out one)." placeholder:"NAME"`
	SVG   string   `name:"svg" help:"Write all curves to this file as images." placeholder:"FILE"`
}

// Help implements kong.HelpProvider.
func (ckptPlotCmd) Help() string {
	return `The checkpoint itself stores the curves, so only its folder is needed. Long curves
are thinned to at most 2048 points.

Examples:
  snug ckpt plot runs/quickstart
  snug ckpt plot runs/quickstart --curve grad_norm
  snug ckpt plot runs/quickstart --svg curves.svg`
}

// The curves that every run has.
const (
	curveLoss = "loss"
	curveEval = "eval_loss"
)

// Run implements the command.
func (c *ckptPlotCmd) Run(a *app) (err error) {
	at, err := a.stateOf(c.state)
	if err != nil {
		return err
	}
	path := at.Path
	ck, err := checkpoint.Inspect(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ck.Close()) }()
	h := ck.Metadata.History
	maps.DeleteFunc(h, func(_ string, s *checkpoint.Series) bool {
		return s == nil || len(s.Value) == 0 || len(s.Update) != len(s.Value)
	})
	if len(h) == 0 {
		return fmt.Errorf("%s has no curves", path)
	}
	full := [][]string{{curveLoss, curveEval}}
	if len(c.Curve) > 0 {
		full = nil
		for _, name := range c.Curve {
			if h[name] == nil {
				return usage("%s has no curve %q, only %s", path, name, strings.Join(sortedKeys(h), ", "))
			}
			full = append(full, []string{name})
		}
	}
	if a.asJSON {
		return c.document(a, h)
	}
	a.printf("%v\n", at)
	for _, names := range full {
		a.printf("%s", drawCurves(h, names))
	}
	rows := [][]string{{"CURVE", "", "FIRST", "LAST", "MIN", "MAX"}}
	for _, name := range sortedKeys(h) {
		y := values(h[name])
		low, high := limits(y)
		rows = append(rows, []string{name, sparkline(relative(spread(y, 40), low, high)), short(y[0]), short(y[len(y)-1]), short(low), short(high)})
	}
	a.printf("\n")
	if err := a.table(rows); err != nil || c.SVG == "" {
		return err
	}
	return a.curvesSVG(c.SVG, h)
}

// document prints the requested curves as JSON, and writes the charts.
func (c *ckptPlotCmd) document(a *app, h checkpoint.History) error {
	if c.SVG != "" {
		if err := a.curvesSVG(c.SVG, h); err != nil {
			return err
		}
	}
	if len(c.Curve) > 0 {
		maps.DeleteFunc(h, func(name string, _ *checkpoint.Series) bool { return !slices.Contains(c.Curve, name) })
	}
	return a.json(h)
}

// curvesSVG writes every curve, with the losses in one chart.
func (a *app) curvesSVG(path string, h checkpoint.History) error {
	var charts []report.Chart
	for _, name := range sortedKeys(h) {
		chart := report.Chart{X: "update", Y: strings.ReplaceAll(name, "_", " ")}
		names := []string{name}
		if name == curveLoss && h[curveEval] != nil {
			names = append(names, curveEval)
		} else if name == curveEval && h[curveLoss] != nil {
			continue
		}
		for _, n := range names {
			s := report.Series{Name: n, Y: values(h[n])}
			for _, u := range h[n].Update {
				s.X = append(s.X, float64(u))
			}
			chart.Series = append(chart.Series, s)
		}
		charts = append(charts, chart)
	}
	if err := durable.Overwrite(path, func(f *os.File) error { return report.WriteSVG(f, charts...) }); err != nil {
		return err
	}
	a.printf("\nwritten to %s\n", path)
	return nil
}

func short(v float64) string { return fmt.Sprintf("%.4g", v) }

func values(s *checkpoint.Series) []float64 {
	y := make([]float64, len(s.Value))
	for i, v := range s.Value {
		y[i] = float64(v)
	}
	return y
}

// spread thins out values evenly to at most n, always keeping the last.
func spread(y []float64, n int) []float64 {
	if len(y) <= n {
		return y
	}
	out := make([]float64, n)
	for i := range out {
		out[i] = y[i*(len(y)-1)/(n-1)]
	}
	return out
}

// limits returns the smallest and largest finite value, NaN if there is none.
func limits(y []float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, v := range y {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			low, high = min(low, v), max(high, v)
		}
	}
	if low > high {
		return math.NaN(), math.NaN()
	}
	return low, high
}

// relative returns the positions of finite values between low and high, from 0 to 1, and leaves out others.
func relative(y []float64, low, high float64) []float64 {
	var out []float64
	for _, v := range y {
		switch {
		case math.IsNaN(v) || math.IsInf(v, 0):
		case high > low:
			out = append(out, (v-low)/(high-low))
		default:
			out = append(out, 1)
		}
	}
	if len(out) == 0 {
		return []float64{0}
	}
	return out
}

// The size of a plot in characters of 2 by 4 dots.
const plotWidth, plotHeight = 72, 14

// drawCurves draws curves over a common axis: the first as dots of Braille characters, further ones as
// circles. Values that are not finite are left out.
func drawCurves(h checkpoint.History, names []string) string {
	var all []float64
	first, last := int64(math.MaxInt64), int64(0)
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return h[n] == nil })
	for _, n := range names {
		all = append(all, values(h[n])...)
		u := h[n].Update
		first, last = min(first, u[0]), max(last, u[len(u)-1])
	}
	low, high := limits(all)
	if math.IsNaN(low) {
		return fmt.Sprintf("%s: no value is finite\n", strings.Join(names, ", "))
	}
	if low == high {
		low, high = low-0.5, high+0.5
	}
	var dots [plotHeight][plotWidth]rune
	for k, n := range names {
		for i, v := range values(h[n]) {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				continue
			}
			x := int(float64(h[n].Update[i]-first) / float64(max(last-first, 1)) * (2*plotWidth - 1))
			y := int((high-v)/(high-low)*(4*plotHeight-1) + 0.5)
			if k > 0 {
				dots[y/4][x/2] = 'o'
			} else if cell := &dots[y/4][x/2]; *cell != 'o' {
				*cell |= 0x2800 | [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}[y%4][x%2]
			}
		}
	}
	var b strings.Builder
	title := names[0] // there is always one, with finite values
	if len(names) > 1 {
		title += ", " + names[1] + " (o)"
	}
	fmt.Fprintf(&b, "%10s %s\n", "", title)
	for row := range dots {
		label := ""
		switch row {
		case 0:
			label = short(high)
		case plotHeight - 1:
			label = short(low)
		}
		line := strings.Map(func(r rune) rune {
			if r == 0 {
				return ' '
			}
			return r
		}, string(dots[row][:]))
		fmt.Fprintf(&b, "%10s │%s\n", label, strings.TrimRight(line, " "))
	}
	fmt.Fprintf(&b, "%10s └%s\n", "", strings.Repeat("─", plotWidth))
	fmt.Fprintf(&b, "%10s  %-*d%*d  update\n", "", plotWidth/2, first, plotWidth-plotWidth/2, last)
	return b.String()
}
