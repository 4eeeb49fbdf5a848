package report

import (
	"fmt"
	"html"
	"html/template"
	"strings"

	"github.com/snug-ml/snug/train/metric"
)

// Heatmap draws a confusion matrix: counts, each with its share of its row, which also determines the shade.
type Heatmap struct{ metric.Matrix }

func (h Heatmap) svg() template.HTML {
	n := len(h.Labels)
	const side = 260.0
	cell := side / float64(max(1, n))
	x0, y0 := 110.0, 24.0
	// Long names are rotated if the columns are narrow.
	place := `x="%s" y="%s" text-anchor="middle"`
	for _, l := range h.Labels {
		if 6*len(l) > int(cell) { // wider than the cell, at about 6 px per letter of 11 px
			place = `transform="translate(%s %s) rotate(-20)" text-anchor="end"`
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="confusion matrix">`, width, height+60)
	fmt.Fprintf(&b, `<text x="%s" y="14" text-anchor="middle">predicted</text>`, px(x0+side/2))
	fmt.Fprintf(&b, `<text transform="translate(14 %s) rotate(-90)" text-anchor="middle">truth</text>`, px(y0+side/2))
	for i, row := range h.Counts {
		sum := 0
		for _, c := range row {
			sum += c
		}
		y := y0 + float64(i)*cell
		fmt.Fprintf(&b, `<text x="%s" y="%s" text-anchor="end">%s</text>`, px(x0-6), px(y+cell/2+4), html.EscapeString(h.Labels[i]))
		fmt.Fprintf(&b, `<text `+place+`>%s</text>`, px(x0+(float64(i)+0.5)*cell), px(y0+side+14), html.EscapeString(h.Labels[i]))
		for j, c := range row {
			share := float64(c) / float64(max(1, sum))
			x := x0 + float64(j)*cell
			fmt.Fprintf(&b, `<rect class="rule" x="%s" y="%s" width="%s" height="%s" fill="%s" fill-opacity="%.3f"><title>%s as %s: %d (%.1f %%)</title></rect>`,
				px(x), px(y), px(cell), px(cell), colors[0], 0.08+0.72*share, html.EscapeString(h.Labels[i]), html.EscapeString(h.Labels[j]), c, 100*share)
			if n <= 12 { // otherwise there is no room
				fmt.Fprintf(&b, `<text x="%s" y="%s" text-anchor="middle">%d</text><text class="soft" x="%s" y="%s" text-anchor="middle">%.1f %%</text>`,
					px(x+cell/2), px(y+cell/2), c, px(x+cell/2), px(y+cell/2+14), 100*share)
			}
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // safe, because all text in it was escaped
}
