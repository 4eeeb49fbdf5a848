package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The sizes of the drawing, in pixels.
const (
	plotWidth, plotLeft, plotRight = 720, 180, 30
	plotRow, plotHead, plotFoot    = 20, 30, 30 // of a panel
)

// plot draws what byFormat lists: a panel for each figure, a row for each format, a dot for each
// seed and a tick at their median.
func (r *report) plot() string {
	var body strings.Builder
	y := 0
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
	step := tickStep(high - low)
	low, high = step*math.Floor(low/step), step*math.Ceil(high/step)
	if low == high {
		high += step
	}
	at := func(v float64) float64 {
		return plotLeft + (v-low)/(high-low)*(plotWidth-plotLeft-plotRight)
	}
	top, bottom := y+plotHead, y+plotHead+plotRow*len(rows)
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="#1b1f24">%s</text>`+"\n", plotLeft, y+20, html.EscapeString(fmt.Sprintf("%s: %s (%s)", p.system, p.name, better)))
	for i := range int(math.Round((high-low)/step)) + 1 {
		v := low + float64(i)*step
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
