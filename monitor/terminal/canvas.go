package terminal

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
	"github.com/clipperhouse/uax29/v2/graphemes"
)

// style is how a cell looks.
type style uint8

const (
	plain style = iota
	faint
	strong
	good
	warn
	bad
	curve0 // of the first curve; more follow
)

// styles are the escape sequences of each style, in the 16 colors that every terminal has
// and users customize.
var styles = [...]string{plain: "", faint: "90", strong: "1", good: "32", warn: "33", bad: "31", curve0: "36", "35", "33", "34", "32", "91"}

const curveStyles = len(styles) - int(curve0)

func curveStyle(i int) style { return curve0 + style(i%curveStyles) }

// cell is a column of a row. A wide character takes two, the second with no text and
// wide set.
type cell struct {
	text  string // "": a space
	style style
	wide  bool
}

// canvas is a screen of cells; nothing is drawn beyond its edges.
type canvas struct {
	w, h  int
	cells []cell
	looks *Looks
}

// Looks describes what a terminal can show.
type Looks struct {
	Color bool
	ASCII bool
}

func newCanvas(w, h int, looks *Looks) *canvas {
	return &canvas{w: w, h: h, cells: make([]cell, max(0, w*h)), looks: looks}
}

func (c *canvas) at(x, y int) *cell {
	if x < 0 || y < 0 || x >= c.w || y >= c.h {
		return nil
	}
	return &c.cells[y*c.w+x]
}

// put writes text at a place, in at most width columns, and returns the column after it.
// Text that does not fit is cut and marked with three dots.
func (c *canvas) put(x, y, width int, s style, text string) int {
	width = min(width, c.w-x)
	if y < 0 || y >= c.h || width <= 0 || x < 0 {
		return x
	}
	text = c.spell(text)
	if ansi.StringWidth(text) > width {
		dots := c.spell("…")
		text = ansi.Truncate(text, max(0, width-len([]rune(dots))), "") + dots
	}
	end := x + width
	for g := graphemes.FromString(text); g.Next(); {
		n := ansi.StringWidth(g.Value())
		if n == 0 || n > 2 {
			continue // it would not take a column of its own
		}
		if x+n > end {
			break
		}
		*c.at(x, y) = cell{g.Value(), s, false}
		if n == 2 {
			*c.at(x+1, y) = cell{"", s, true}
		}
		x += n
	}
	return x
}

var spelling = strings.NewReplacer(
	"…", "...", "│", "|", "─", "-", "└", "+", "•", "*", "→", "->", "←", "<-", "↑", "up", "↓", "down", "·", "-", "°C", "C", "µ", "u", "▶", ">", "█", "#", "▓", "=", "▒", "+", "░", ".", "┃", "|",
)

// spell returns a text as the terminal can show it.
func (c *canvas) spell(text string) string {
	if !c.looks.ASCII {
		return text
	}
	return strings.Map(func(r rune) rune {
		if r > '~' {
			return '?'
		}
		return r
	}, spelling.Replace(text))
}

// String returns the screen with its styles, lines without trailing spaces.
func (c *canvas) String() string {
	var b strings.Builder
	for y := range c.h {
		if y > 0 {
			b.WriteByte('\n')
		}
		row := c.cells[y*c.w : (y+1)*c.w]
		end := len(row)
		for end > 0 && row[end-1].text == "" && !row[end-1].wide {
			end--
		}
		last := plain
		for _, x := range row[:end] {
			if x.wide {
				continue
			}
			if x.style != last && c.looks.Color && (x.text != "" || last != plain) {
				s := x.style
				if x.text == "" {
					s = plain
				}
				if last != plain {
					b.WriteString("\x1b[m")
				}
				if styles[s] != "" {
					b.WriteString("\x1b[" + styles[s] + "m")
				}
				last = s
			}
			if x.text == "" {
				b.WriteByte(' ')
			} else {
				b.WriteString(x.text)
			}
		}
		if last != plain {
			b.WriteString("\x1b[m")
		}
	}
	return b.String()
}

// wrap breaks a text into lines of at most width columns, the further ones indented.
func wrap(text string, width, indent int) (lines []string) {
	for i, line := range strings.Split(ansi.Wrap(text, max(width-indent, 10), ""), "\n") {
		if i > 0 {
			line = strings.Repeat(" ", indent) + line
		}
		lines = append(lines, line)
	}
	return lines
}
