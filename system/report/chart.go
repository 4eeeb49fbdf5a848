package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// Style says how a series is drawn.
type Style uint8

// These are the styles.
const (
	Line   Style = iota
	Dashed       // dashed line, for something to compare with
	Step         // staircase: a value holds until the next one
	Points
	Bars // from 0 up, as wide as the distance between neighbors
)

// Series is a set of points. Points that are not finite are left out. If X and Y differ in length, the rest
// of the longer one is ignored.
type Series struct {
	Name  string
	X, Y  []float64
	Style Style
}

// Mark is a point with a name in the chart.
type Mark struct {
	X, Y float64
	Name string
}

// Chart is a plot of series with common axes.
type Chart struct {
	X      string   `json:"x"` // names of the axes
	Y      string   `json:"y"`
	Series []Series `json:"series"`
	Marks  []Mark   `json:"marks,omitempty"`
	// XRange and YRange are the ends of the axes. If both ends are 0, they follow the points.
	XRange [2]float64 `json:"x_range"`
	YRange [2]float64 `json:"y_range"`
}

// These are the sizes of a chart, in its own units.
const (
	width, height             = 420, 300
	left, right, top, bottom  = 60, 12, 12, 40
	legendLine, legendPadding = 15, 6
)

// colors is the palette of Okabe and Ito, which color-blind people can tell apart.
var colors = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

func (c Chart) svg() template.HTML {
	x, y := c.scales()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s over %s">`, width, height, html.EscapeString(c.Y), html.EscapeString(c.X))
	c.axes(&b, x, y)
	dropped := 0
	for i, s := range c.Series {
		dropped += s.draw(&b, x, y, colors[i%len(colors)])
	}
	for _, m := range c.Marks {
		if finite(m.X) && finite(m.Y) {
			fmt.Fprintf(&b, `<circle cx="%s" cy="%s" r="4.5" fill="none" stroke="currentColor" stroke-width="1.5"><title>%s</title></circle>`, px(x.at(m.X)), px(y.at(m.Y)), html.EscapeString(m.Name))
			c.tag(&b, x.at(m.X), y.at(m.Y), m.Name)
		}
	}
	c.legend(&b, x, y)
	if dropped > 0 {
		fmt.Fprintf(&b, `<text class="soft" x="%d" y="%d" text-anchor="end">%d points are not finite</text>`, width-right, height-4, dropped)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // safe, because all text in it was escaped
}

// scales returns the scales of the axes.
func (c Chart) scales() (x, y scale) {
	var xs, ys [][]float64
	for _, s := range c.Series {
		xs, ys = append(xs, s.X), append(ys, s.Y)
		if s.Style == Bars {
			ys = append(ys, []float64{0})
		}
	}
	ends := func(fixed [2]float64, values [][]float64) (low, high float64) {
		if fixed != ([2]float64{}) {
			return fixed[0], fixed[1]
		}
		return span(values...)
	}
	x = scale{from: left, to: width - right}
	y = scale{from: height - bottom, to: top}
	x.low, x.high = ends(c.XRange, xs)
	y.low, y.high = ends(c.YRange, ys)
	return x, y
}

// axes draws the frame, the ticks and the names of the axes.
func (c Chart) axes(b *strings.Builder, x, y scale) {
	for _, v := range ticks(x.low, x.high, 6) {
		at := px(x.at(v))
		fmt.Fprintf(b, `<line class="rule" x1="%s" y1="%s" x2="%s" y2="%s"/><text class="soft" x="%s" y="%d" text-anchor="middle">%s</text>`,
			at, px(y.from), at, px(y.to), at, height-bottom+14, label(v))
	}
	for _, v := range ticks(y.low, y.high, 6) {
		at := y.at(v)
		fmt.Fprintf(b, `<line class="rule" x1="%s" y1="%s" x2="%s" y2="%s"/><text class="soft" x="%d" y="%s" text-anchor="end">%s</text>`,
			px(x.from), px(at), px(x.to), px(at), left-5, px(at+4), label(v))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`, (left+width-right)/2, height-8, html.EscapeString(c.X))
	fmt.Fprintf(b, `<text transform="translate(12 %d) rotate(-90)" text-anchor="middle">%s</text>`, (top+height-bottom)/2, html.EscapeString(c.Y))
}

// tag writes the name of a mark where there is room for it.
func (c Chart) tag(b *strings.Builder, x, y float64, name string) {
	anchor, dx := "start", 8.0
	if x > width*0.6 {
		anchor, dx = "end", -8
	}
	dy := -6.0
	if y < top+20 {
		dy = 16
	}
	fmt.Fprintf(b, `<text x="%s" y="%s" text-anchor="%s">%s</text>`, px(x+dx), px(y+dy), anchor, html.EscapeString(name))
}

// legend names the series, in the corner with the fewest points.
func (c Chart) legend(b *strings.Builder, sx, sy scale) {
	var names []int
	longest := 0
	for i, s := range c.Series {
		if s.Name != "" {
			names = append(names, i)
			longest = max(longest, len([]rune(s.Name)))
		}
	}
	if len(names) < 1 {
		return
	}
	w, h := float64(longest)*5.8+26, float64(len(names)*legendLine+legendPadding)
	x, y := c.corner(w, h, sx, sy)
	fmt.Fprintf(b, `<rect x="%s" y="%s" width="%s" height="%s" rx="3" fill="var(--page)" fill-opacity=".8"/>`, px(x), px(y), px(w), px(h))
	for row, i := range names {
		at := y + float64(row*legendLine) + 12
		dash := ""
		if c.Series[i].Style == Dashed {
			dash = ` stroke-dasharray="4 3"`
		}
		fmt.Fprintf(b, `<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s" stroke-width="2.5"%s/><text x="%s" y="%s">%s</text>`,
			px(x+4), px(at-4), px(x+18), px(at-4), colors[i%len(colors)], dash, px(x+23), px(at), html.EscapeString(c.Series[i].Name))
	}
}

// corner returns the position of a w by h box in the corner with the fewest points.
func (c Chart) corner(w, h float64, sx, sy scale) (x, y float64) {
	best := math.MaxInt
	for _, at := range [][2]float64{{width - right - w - 4, top + 4}, {left + 4, top + 4}, {width - right - w - 4, height - bottom - h - 4}, {left + 4, height - bottom - h - 4}} {
		n := 0
		for _, s := range c.Series {
			for i := range min(len(s.X), len(s.Y)) {
				vx, vy := sx.at(s.X[i]), sy.at(s.Y[i])
				if vx >= at[0] && vx <= at[0]+w && vy >= at[1] && vy <= at[1]+h {
					n++
				}
			}
		}
		if n < best {
			best, x, y = n, at[0], at[1]
		}
	}
	return x, y
}

// draw writes the series and returns the number of points left out.
func (s Series) draw(b *strings.Builder, x, y scale, colour string) (dropped int) {
	n := min(len(s.X), len(s.Y))
	var atX, atY []float64
	for i := range n {
		if !finite(s.X[i]) || !finite(s.Y[i]) {
			dropped++
			continue
		}
		atX, atY = append(atX, x.at(s.X[i])), append(atY, clamp(y.at(s.Y[i])))
	}
	switch s.Style {
	case Points:
		for i := range atX {
			fmt.Fprintf(b, `<circle cx="%s" cy="%s" r="3" fill="%s" fill-opacity=".7"/>`, px(atX[i]), px(atY[i]), colour)
		}
	case Bars:
		w := 8.0
		if len(atX) > 1 {
			w = math.Abs(atX[1]-atX[0]) * 0.96
		}
		for i := range atX {
			fmt.Fprintf(b, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s" fill-opacity=".55"/>`, px(atX[i]-w/2), px(atY[i]), px(w), px(max(0, y.from-atY[i])), colour)
		}
	default:
		if len(atX) == 0 {
			break
		}
		if len(atX) == 1 { // a line with one point would be invisible
			fmt.Fprintf(b, `<circle cx="%s" cy="%s" r="3" fill="%s"/>`, px(atX[0]), px(atY[0]), colour)
			break
		}
		dash := ""
		if s.Style == Dashed {
			dash = ` stroke-dasharray="5 4"`
		}
		fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="1.8"%s d="M%s %s`, colour, dash, px(atX[0]), px(atY[0]))
		for i := 1; i < len(atX); i++ {
			if s.Style == Step {
				fmt.Fprintf(b, "H%s", px(atX[i]))
			}
			fmt.Fprintf(b, "L%s %s", px(atX[i]), px(atY[i]))
		}
		b.WriteString(`"/>`)
	}
	return dropped
}

// clamp moves a position beyond a fixed axis to the edge of the chart.
func clamp(v float64) float64 { return min(height-bottom, max(top, v)) }

// Histogram counts values in bins of equal width over [low, high]. Values beyond are counted in the outermost
// bins. The points are at the middle of the bins.
func Histogram(name string, values []float64, low, high float64, bins int) Series {
	s := Series{Name: name, X: make([]float64, bins), Y: make([]float64, bins), Style: Bars}
	w := (high - low) / float64(bins)
	for i := range s.X {
		s.X[i] = low + (float64(i)+0.5)*w
	}
	for _, v := range values {
		if finite(v) {
			s.Y[min(bins-1, max(0, int((v-low)/w)))]++
		}
	}
	return s
}
