package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The sizes of the drawing, in pixels.
const (
	plotWidth, plotLeft, plotRight = 750, 210, 30
	plotRow, plotHead, plotFoot    = 20, 30, 30 // of a panel
)

// plot draws what byFormat lists: the curves of each system, then a panel for each figure, with a row for each
// format, a dot for each seed and a tick at their median.
func (r *report) plot() string {
	var body strings.Builder
	y := 0
	for _, system := range systems() {
		y += r.curves(&body, y, system)
	}
	for _, p := range promises {
		var rows []spread
		var names []string
		all, _ := r.figures(p, always)
		for i, f := range formats {
			if v, _ := r.figures(p, func(x result) bool { return x.Format == f.name || x.Format == "" && i == 0 }); len(v.values) > 0 {
				rows, names = append(rows, v), append(names, f.name)
			}
		}
		if len(rows) < 2 {
			continue // nothing to compare
		}
		y += panel(&body, y, p, names, rows, all)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" rx="6" fill="#ffffff"/>
%s</svg>
`, plotWidth, y, &body)
}

// panel draws one at the height y and gives its own height.
func panel(b *strings.Builder, y int, p promise, names []string, rows []spread, all spread) (height int) {
	better := "higher is better"
	if p.lower {
		better = "lower is better"
	}
	low, _, high := all.of()
	low, high, step := axis(low, high)
	at := func(v float64) float64 {
		return plotLeft + (v-low)/(high-low)*(plotWidth-plotLeft-plotRight)
	}
	top, bottom := y+plotHead, y+plotHead+plotRow*len(rows)
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="#1b1f24">%s</text>`+"\n", plotLeft, y+20, html.EscapeString(fmt.Sprintf("%s: %s (%s)", p.system, p.name, better)))
	for _, v := range ticks(low, high, step) {
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1[1]f" y1="%d" y2="%d" stroke="#e3e8ef"/><text x="%.1[1]f" y="%[4]d" text-anchor="middle" fill="#59636e">%.4[5]g</text>`+"\n", at(v), top, bottom, bottom+16, v)
	}
	for i, row := range rows {
		middle := top + plotRow*i + plotRow/2
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="#59636e">%s</text>`+"\n", plotLeft-10, middle+4, html.EscapeString(names[i]))
		least, median, greatest := row.of()
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%[3]d" stroke="#0072b2" stroke-opacity=".4" stroke-width="2"/>`, at(least), at(greatest), middle)
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1[1]f" y1="%d" y2="%d" stroke="#0072b2" stroke-width="2"/>`, at(median), middle-6, middle+6)
		for _, v := range row.values {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%d" r="3.5" fill="#0072b2" fill-opacity=".7"/>`, at(v), middle)
		}
		b.WriteString("\n")
	}
	return bottom + plotFoot - y
}

// colors are those of Okabe and Ito, one for each format.
var colors = [...]string{"#000000", "#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"}

// curves draws the held-out loss over updates, a line for each run of which it is known, and gives
// the height that this takes: 0 without two formats.
func (r *report) curves(b *strings.Builder, y int, system string) (height int) {
	const body = 220
	lines := make([][]result, len(formats))
	var losses spread
	last, drawn := 0.0, 0
	for i, f := range formats {
		for _, x := range r.results {
			if x.System != system || len(x.Curve) == 0 || x.Format != f.name && (x.Format != "" || i > 0) {
				continue
			}
			lines[i] = append(lines[i], x)
			for _, p := range x.Curve {
				losses.add(p.Loss)
				last = max(last, p.Update)
			}
		}
		if len(lines[i]) > 0 {
			drawn++
		}
	}
	if drawn < 2 {
		return 0
	}
	low, _, high := losses.of()
	low, high, step := axis(low, high)
	_, end, every := axis(0, last)
	top, bottom := y+plotHead, y+plotHead+body
	atX := func(v float64) float64 { return plotLeft + v/end*(plotWidth-plotLeft-plotRight) }
	atY := func(v float64) float64 { return float64(bottom) - (v-low)/(high-low)*body }
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="#1b1f24">%s: held-out loss by update</text>`+"\n", plotLeft, y+20, html.EscapeString(system))
	for _, v := range ticks(low, high, step) {
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1[3]f" stroke="#e3e8ef"/><text x="%d" y="%.1f" text-anchor="end" fill="#59636e">%.4g</text>`+"\n", plotLeft, plotWidth-plotRight, atY(v), plotLeft-6, atY(v)+4, v)
	}
	for _, v := range ticks(0, end, every) {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#59636e">%.4g</text>`+"\n", atX(v), bottom+16, v)
	}
	row := 0
	for i, of := range lines {
		if len(of) == 0 {
			continue
		}
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="#59636e">%s</text><line x1="%d" x2="%d" y1="%d" y2="%[6]d" stroke="%s" stroke-width="3"/>`+"\n",
			plotLeft-64, top+plotRow*row+12, html.EscapeString(formats[i].name), plotLeft-58, plotLeft-44, top+plotRow*row+8, colors[i%len(colors)])
		row++
		for _, x := range of {
			fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, colors[i%len(colors)])
			for _, p := range x.Curve {
				fmt.Fprintf(b, "%.1f,%.1f ", atX(p.Update), atY(p.Loss))
			}
			b.WriteString(`"/>` + "\n")
		}
	}
	return bottom + plotFoot - y
}

// axis widens a range to whole steps.
func axis(least, most float64) (low, high, step float64) {
	step = tickStep(most - least)
	low, high = step*math.Floor(least/step), step*math.Ceil(most/step)
	if low == high {
		high += step
	}
	return low, high, step
}

func ticks(low, high, step float64) (list []float64) {
	for i := range int(math.Round((high-low)/step)) + 1 {
		list = append(list, low+float64(i)*step)
	}
	return list
}

// tickStep is 1, 2 or 5 times a power of ten of which a range has four to nine.
func tickStep(over float64) float64 {
	if over <= 0 {
		return 0.01
	}
	power := math.Pow(10, math.Floor(math.Log10(over/4)))
	for _, k := range []float64{5, 2} {
		if over/(k*power) >= 4 {
			return k * power
		}
	}
	return power
}
