package report

import (
	"fmt"
	"io"
	"strings"
)

// WriteSVG writes charts as a separate SVG file, one below the other.
func WriteSVG(w io.Writer, charts ...Chart) error {
	all := make([]Drawing, len(charts))
	for i, c := range charts {
		all[i] = c
	}
	return writeSVG(w, all...)
}

func writeSVG(w io.Writer, charts ...Drawing) error {
	const margin = 14
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="system-ui, sans-serif" font-size="11">
<style>
svg { --ink: #1b1f24; --soft: #59636e; --rule: #d1d9e0; --page: #ffffff; color: var(--ink); }
text { fill: var(--ink); } .soft { fill: var(--soft); } .rule { stroke: var(--rule); }
</style>
<rect width="100%%" height="100%%" fill="#ffffff"/>
`, 2*width, len(charts)*(2*height+margin))
	for i, c := range charts {
		// width, height and y place a nested chart.
		place := fmt.Sprintf(`<svg width="%d" height="%d" y="%d" `, 2*width, 2*height, i*(2*height+margin))
		b.WriteString(place + strings.TrimPrefix(string(c.svg()), "<svg ") + "\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
