package terminal

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
)

// curve is a line of a plot, or its points.
type curve struct {
	name  string
	x, y  []monitor.Number
	style style
	mark  string // "": connected dots; otherwise each point is this character
	quiet bool   // the title does not name it
}

// plot is a panel with curves over a common axis.
type plot struct {
	panel  string
	title  string
	curves []curve
	unit   string
	log    bool    // as requested; if nothing is positive the scale is linear
	clock  bool    // x are seconds
	from   float64 // of x: earlier points are not shown
	to     float64
	bad    int // points that are not finite
	focus  bool
	legend bool
}

// area is a part of the screen.
type area struct{ x, y, w, h int }

// draw draws the plot: its title, curves with an axis, and the range of x.
func (p *plot) draw(c *canvas, a area) {
	p.heading(c, a)
	plotArea := area{a.x, a.y + 1, a.w, a.h - 2}
	if a.h < 5 {
		plotArea.h = a.h - 1
	}
	low, high, any := p.limits()
	lowX, highX := p.from, p.to
	if !any {
		c.put(a.x+1, a.y+1+plotArea.h/2, a.w-1, faint, p.nothing())
		return
	}
	scale := func(v float64) float64 { return v }
	if p.log && low > 0 {
		scale = math.Log10
	}
	if p.unit == "percent" {
		low, high = 0, max(high, 100)
	}
	if low == high {
		if pad := math.Abs(low) / 10; pad > 0 && scale(10) == 10 {
			low, high = max(low-pad, -math.MaxFloat64), min(high+pad, math.MaxFloat64)
		} else if pad > 0 {
			low, high = low/2, min(high*2, math.MaxFloat64)
		} else {
			low, high = -0.5, 0.5
		}
	}
	top, bottom := p.label(high, high-low), p.label(low, high-low)
	label := max(len([]rune(top)), len([]rune(bottom)))
	if plotArea.w < 4*label || plotArea.h < 2 {
		label = -1 // no room for them
	} else {
		c.put(a.x+label-len([]rune(top)), plotArea.y, label, faint, top)
		c.put(a.x+label-len([]rune(bottom)), plotArea.y+plotArea.h-1, label, faint, bottom)
	}
	for y := range plotArea.h {
		c.put(a.x+label+1, plotArea.y+y, 1, faint, "│")
	}
	inner := area{a.x + label + 2, plotArea.y, a.w - label - 2, plotArea.h}
	d := newDots(c, inner)
	for i := range p.curves {
		x := &p.curves[i]
		at := func(k int) (px, py float64, ok bool) {
			vx, vy := float64(x.x[k]), float64(x.y[k])
			if math.IsNaN(vy) || math.IsInf(vy, 0) || p.log && low > 0 && vy <= 0 {
				return 0, 0, false
			}
			if px = 0.5; highX > lowX {
				px = (vx - lowX) / (highX - lowX)
			}
			// Halves, as the range itself may overflow a float64.
			py = (scale(high)/2 - scale(vy)/2) / (scale(high)/2 - scale(low)/2)
			return px, py, px >= 0 && px <= 1 && py >= 0 && py <= 1
		}
		d.curve(x, at)
	}
	if a.h >= 5 {
		first, last := p.place(lowX), p.place(highX)
		c.put(inner.x, a.y+a.h-1, inner.w, faint, first)
		if n := len([]rune(last)); highX > lowX && n+len([]rune(first)) < inner.w {
			c.put(inner.x+inner.w-n, a.y+a.h-1, n, faint, last)
		}
	}
}

// heading is the title with the names of the curves and their last values.
func (p *plot) heading(c *canvas, a area) {
	mark, s := " ", plain
	if p.focus {
		mark, s = "▶", strong
	}
	x := c.put(a.x, a.y, a.w, s, mark+p.title)
	if p.log {
		x = c.put(x, a.y, a.x+a.w-x, faint, " log")
	}
	for i := range p.curves {
		k := &p.curves[i]
		if k.quiet {
			continue
		}
		text := ""
		if p.legend && len(p.curves) > 1 {
			text = "  " + k.name
		}
		if k.mark != "" {
			text += " " + k.mark
		}
		if v, ok := lastFinite(k.y); ok {
			text += " " + p.value(v, 0)
			if text[:2] != "  " {
				text = " " + text
			}
		}
		if a.x+a.w-x < len(text)/2 {
			break
		}
		x = c.put(x, a.y, a.x+a.w-x, k.style, text)
	}
	if p.bad > 0 {
		c.put(x, a.y, a.x+a.w-x, bad, fmt.Sprintf("  %d not finite", p.bad))
	}
}

// nothing says why there is no curve.
func (p *plot) nothing() string {
	if p.bad > 0 {
		return "no value is finite"
	}
	return "nothing yet"
}

func lastFinite(y []monitor.Number) (float64, bool) {
	for i := len(y) - 1; i >= 0; i-- {
		if v := float64(y[i]); !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v, true
		}
	}
	return 0, false
}

// limits returns the range of the values that are shown; any is false if there are none.
func (p *plot) limits() (low, high float64, any bool) {
	low, high = math.Inf(1), math.Inf(-1)
	least := math.Inf(1) // least positive value
	for i := range p.curves {
		k := &p.curves[i]
		for n, v := range k.y {
			x, y := float64(k.x[n]), float64(v)
			if x < p.from || x > p.to {
				continue
			}
			if math.IsNaN(y) || math.IsInf(y, 0) {
				continue
			}
			low, high, any = min(low, y), max(high, y), true
			if y > 0 {
				least = min(least, y)
			}
		}
	}
	if p.log = p.log && !math.IsInf(least, 1); p.log {
		low = least
	}
	return low, high, any
}

// place prints a value of x.
func (p *plot) place(x float64) string {
	if p.clock {
		return clock(x)
	}
	return fmt.Sprintf("%.0f", x)
}

// label prints a value at the axis, whose range is wide.
func (p *plot) label(v, wide float64) string {
	if strings.HasSuffix(p.unit, "/s") {
		return size.Count(v)
	}
	return p.value(v, wide)
}

// value prints a value of y; wide is the range of the axis that it labels, 0: none.
func (p *plot) value(v, wide float64) string {
	switch p.unit {
	case "bytes":
		return size.Bytes(int64(v)).String()
	case "percent", "percent of a processor":
		return fmt.Sprintf("%.0f %%", v)
	case "share":
		return fmt.Sprintf("%.1f %%", 100*v)
	case "W", "°C", "MHz":
		return fmt.Sprintf("%.0f %s", v, p.unit)
	case "s":
		return duration(v)
	case "":
		return figure(v, wide)
	}
	return size.Count(v) + " " + p.unit
}

// figure prints a number in few digits; for a narrow range enough to distinguish its
// ends.
func figure(v, wide float64) string {
	digits := 4
	if wide > 0 && v != 0 {
		digits = min(max(4, 2+int(math.Ceil(math.Log10(math.Abs(v)/wide)))), 8)
	}
	if x := math.Abs(v); x != 0 && (x < 1e-3 || x >= 1e6) {
		return fmt.Sprintf("%.*e", max(1, digits-3), v)
	}
	return fmt.Sprintf("%.*g", digits, v)
}

// duration prints seconds.
func duration(s float64) string {
	switch {
	case s < 0 || math.IsNaN(s) || s > 1e9:
		return "?"
	case s == 0:
		return "0 s"
	case s < 1e-3:
		return fmt.Sprintf("%.3g µs", 1e6*s)
	case s < 1:
		return fmt.Sprintf("%.3g ms", 1e3*s)
	case s < 100:
		return fmt.Sprintf("%.3g s", s)
	}
	return (time.Duration(s) * time.Second).String()
}

// clock prints seconds as 1:02:03.
func clock(s float64) string {
	n := int64(math.Round(s))
	if n < 0 {
		return fmt.Sprintf("%d s", n)
	}
	if n < 3600 {
		return fmt.Sprintf("%d:%02d", n/60, n%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", n/3600, n/60%60, n%60)
}

// dots draws on a part of the screen with a finer grid than its cells: Braille characters
// have 2 by 4 dots each. If the terminal has only ASCII, a cell is a dot.
type dots struct {
	c      *canvas
	a      area
	fx, fy int // dots of a cell
}

func newDots(c *canvas, a area) *dots {
	if c.looks.ASCII {
		return &dots{c, a, 1, 1}
	}
	return &dots{c, a, 2, 4}
}

// brailleDots are the bits of U+2800 by row and column.
var brailleDots = [4][2]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

// set sets a dot. Lines do not overwrite the mark of a point.
func (d *dots) set(x, y int, s style, mark string) {
	cell := d.c.at(d.a.x+x/d.fx, d.a.y+y/d.fy)
	if cell == nil || x < 0 || y < 0 || x >= d.a.w*d.fx || y >= d.a.h*d.fy {
		return
	}
	if mark != "" || d.fx == 1 {
		if mark == "" {
			mark = "*"
		}
		cell.text, cell.style = mark, s
		return
	}
	r := rune(0x2800)
	if t := []rune(cell.text); len(t) == 1 && t[0] >= 0x2800 && t[0] <= 0x28ff {
		r = t[0]
	}
	cell.text, cell.style = string(r|brailleDots[y%4][x%2]), s
}

// curve draws a curve whose points at returns, from 0 to 1 rightward and downward.
func (d *dots) curve(k *curve, at func(i int) (x, y float64, ok bool)) {
	w, h := float64(d.a.w*d.fx-1), float64(d.a.h*d.fy-1)
	joined := false
	var lastX, lastY int
	for i := range k.x {
		px, py, ok := at(i)
		if !ok {
			joined = false
			continue
		}
		x, y := int(math.Round(px*w)), int(math.Round(py*h))
		if joined && k.mark == "" {
			d.line(lastX, lastY, x, y, k.style)
		} else {
			d.set(x, y, k.style, k.mark)
		}
		joined, lastX, lastY = true, x, y
	}
}

// line joins two points (Bresenham's algorithm).
func (d *dots) line(x0, y0, x1, y1 int, s style) {
	dx, dy := abs(x1-x0), -abs(y1-y0)
	sx, sy := sign(x1-x0), sign(y1-y0)
	for e := dx + dy; ; {
		d.set(x0, y0, s, "")
		if x0 == x1 && y0 == y1 {
			return
		}
		e2 := 2 * e
		if e2 >= dy {
			e, x0 = e+dy, x0+sx
		}
		if e2 <= dx {
			e, y0 = e+dx, y0+sy
		}
	}
}

func abs(x int) int { return max(x, -x) }

func sign(x int) int {
	switch {
	case x < 0:
		return -1
	case x > 0:
		return 1
	}
	return 0
}
