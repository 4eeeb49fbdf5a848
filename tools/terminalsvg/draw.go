package main

import (
	"bytes"
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// The size of a character, of the edge around the screen, and of a dot.
const (
	charWidth  = 8
	charHeight = 17
	edge       = 12
	fontSize   = 13
)

// colors are those of a dark terminal by the parameters of an escape sequence; "" is
// plain text.
var colors = map[string]string{
	"": "#d6dbe3", "1": "#ffffff", "90": "#8a94a3", "31": "#ff8a80", "32": "#4fd39a", "33": "#f0b452", "34": "#7db0ff", "35": "#e07fcc", "36": "#4cc6dc", "91": "#ffb3ab",
}

// blocks are the characters that are drawn as bars, and how dense they are.
var blocks = map[rune]float64{'█': 1, '▓': 0.75, '▒': 0.5, '░': 0.3}

// picture collects what is drawn, dots and bars by color.
type picture struct {
	texts      bytes.Buffer
	dots, bars map[string]*strings.Builder
}

// draw draws a screen of so many columns. Dots and bars are drawn as such, so that the
// picture does not depend on a font that has them.
func draw(screen string, columns int) []byte {
	p := &picture{dots: map[string]*strings.Builder{}, bars: map[string]*strings.Builder{}}
	lines := strings.Split(screen, "\n")
	for y, line := range lines {
		p.line(y, line)
	}
	width, height := 2*edge+columns*charWidth, 2*edge+len(lines)*charHeight
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" role="img" aria-label="snug monitor in a terminal" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="%d">`+"\n", width, height, fontSize)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="8" fill="#12161c"/>`+"\n")
	b.Write(p.texts.Bytes())
	for _, color := range sorted(p.bars) {
		fmt.Fprintf(&b, `<path fill="%s" d="%s"/>`+"\n", color, p.bars[color])
	}
	for _, color := range sorted(p.dots) {
		fmt.Fprintf(&b, `<path stroke="%s" stroke-width="2.4" stroke-linecap="round" d="%s"/>`+"\n", color, p.dots[color])
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func sorted(m map[string]*strings.Builder) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// line draws a row: escape sequences set its colors.
func (p *picture) line(y int, line string) {
	style, x := "", 0
	var text strings.Builder
	begin := 0
	flush := func() {
		p.text(begin, y, style, text.String())
		text.Reset()
	}
	for len(line) > 0 {
		if rest, ok := strings.CutPrefix(line, "\x1b["); ok {
			flush()
			style, line, _ = strings.Cut(rest, "m")
			continue
		}
		r := []rune(line[:min(len(line), 4)])[0]
		size := len(string(r))
		switch density := blocks[r]; {
		case r >= 0x2800 && r <= 0x28ff:
			flush()
			p.braille(x, y, style, r)
		case density > 0:
			flush()
			p.bar(x, y, style, density, 1)
		case r == '│' || r == '┃':
			flush()
			p.bar(x, y, style, 1, map[rune]float64{'│': 0.12, '┃': 0.3}[r])
		default:
			if text.Len() == 0 {
				begin = x
			}
			text.WriteRune(r)
		}
		line = line[size:]
		x += ansi.StringWidth(string(r))
	}
	flush()
}

// text writes a stretch of text, whose columns are kept whatever the font is.
func (p *picture) text(x, y int, style, text string) {
	shown := strings.TrimLeft(text, " ")
	x += len(text) - len(shown)
	if shown = strings.TrimRight(shown, " "); shown == "" {
		return
	}
	weight := ""
	if style == "1" {
		weight = ` font-weight="700"`
	}
	fmt.Fprintf(&p.texts, `<text x="%d" y="%d" textLength="%d" lengthAdjust="spacingAndGlyphs" fill="%s"%s xml:space="preserve">%s</text>`+"\n",
		edge+x*charWidth, edge+y*charHeight+13, ansi.StringWidth(shown)*charWidth, colorOf(style), weight, html.EscapeString(shown))
}

func colorOf(style string) string {
	if c := colors[style]; c != "" {
		return c
	}
	return colors[""]
}

func of(m map[string]*strings.Builder, key string) *strings.Builder {
	if m[key] == nil {
		m[key] = &strings.Builder{}
	}
	return m[key]
}

// braille draws the dots of a Braille character: two columns of four.
func (p *picture) braille(x, y int, style string, r rune) {
	b := of(p.dots, colorOf(style))
	for i, bit := range []rune{0x01, 0x02, 0x04, 0x40, 0x08, 0x10, 0x20, 0x80} {
		if (r-0x2800)&bit != 0 {
			fmt.Fprintf(b, "M%d %.1fh0", edge+x*charWidth+2+i/4*4, float64(edge+y*charHeight)+2.1+float64(i%4)*charHeight/4)
		}
	}
}

// bar fills a part of a character, from its middle.
func (p *picture) bar(x, y int, style string, density, share float64) {
	color := colorOf(style)
	if density < 1 {
		color += fmt.Sprintf("%02x", int(255*density))
	}
	high := charHeight
	top := edge + y*charHeight
	if share == 1 { // a bar, and not an axis
		high, top = charHeight-5, top+3
	}
	wide := share * charWidth
	fmt.Fprintf(of(p.bars, color), "M%.1f %dh%.1fv%dh-%.1fz", float64(edge+x*charWidth)+(charWidth-wide)/2, top, wide, high, wide)
}
