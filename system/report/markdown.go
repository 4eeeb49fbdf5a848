package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/snug-ml/snug/monitor"
)

// WriteMarkdown writes the page as Markdown. picture returns the file of a figure, by the number of its
// section and its own number. If picture is nil or returns "", the data of the figure is written as a table.
func (p *Page) WriteMarkdown(w io.Writer, picture func(section, figure int) string) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# %s\n", markdown(p.Title))
	for _, line := range strings.Split(p.Lead, "\n") {
		if line != "" {
			fmt.Fprintf(b, "\n%s\n", markdown(line))
		}
	}
	for i, s := range p.Sections {
		if s.Part != "" {
			fmt.Fprintf(b, "\n# %s\n", markdown(s.Part))
		}
		fmt.Fprintf(b, "\n## %s\n", markdown(s.Title))
		if s.Text != "" {
			fmt.Fprintf(b, "\n%s\n", markdown(s.Text))
		}
		for _, t := range s.Tables {
			t.markdown(b)
		}
		var told Table
		for k, f := range s.Figures {
			name := ""
			if picture != nil {
				name = picture(i, k)
			}
			if c, ok := f.Drawing.(Chart); name == "" && ok {
				told.Rows = append(told.Rows, c.told(f)...)
				continue
			}
			if name != "" {
				fmt.Fprintf(b, "\n![%s](%s)\n", markdown(f.Caption+from(f.Source)), name)
			}
			if h, ok := f.Drawing.(Heatmap); ok {
				h.table(f.Caption, f.Source).markdown(b)
			}
		}
		if told.Rows != nil {
			told.Header = []string{"curve", "of", "points", "first", "last", "lowest", "highest"}
			told.markdown(b)
		}
	}
	return b.Flush()
}

func from(source string) string {
	if source == "" {
		return ""
	}
	return " (from " + source + ")"
}

func (t Table) markdown(b *bufio.Writer) {
	if t.Caption != "" || t.Source != "" {
		fmt.Fprintf(b, "\n%s:\n", markdown(strings.TrimSpace(strings.TrimRight(t.Caption, ".:")+from(t.Source))))
	}
	header := t.Header
	if header == nil && len(t.Rows) > 0 {
		header = make([]string, len(t.Rows[0]))
	}
	row := func(cells []string) {
		for i := range header {
			text := ""
			if i < len(cells) {
				text = cells[i]
			}
			fmt.Fprintf(b, "| %s ", markdown(text))
		}
		fmt.Fprintf(b, "|\n")
	}
	fmt.Fprintf(b, "\n")
	row(header)
	for i := range header {
		if i == 0 || t.Text {
			fmt.Fprintf(b, "|---")
		} else {
			fmt.Fprintf(b, "|---:")
		}
	}
	fmt.Fprintf(b, "|\n")
	for _, r := range t.Rows {
		row(r)
	}
}

// told returns the curves of a chart as numbers.
func (c Chart) told(f Figure) (rows [][]string) {
	for _, s := range c.Series {
		var first, last, low, high float64
		n := 0
		for i := range min(len(s.X), len(s.Y)) {
			y := s.Y[i]
			if !finite(y) {
				continue
			}
			if n == 0 {
				first, low, high = y, y, y
			}
			last, low, high = y, min(low, y), max(high, y)
			n++
		}
		name := s.Name
		if name == "" {
			name = c.Y
		}
		row := []string{name, c.Y + " over " + c.X + from(f.Source), fmt.Sprint(n), "", "", "", ""}
		if n > 0 {
			for i, v := range []float64{first, last, low, high} {
				row[3+i] = fmt.Sprintf("%.5g", v)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// table returns the counts of a confusion matrix.
func (h Heatmap) table(caption, source string) Table {
	t := Table{Caption: caption, Source: source, Header: append([]string{"truth, predicted"}, h.Labels...)}
	for i, row := range h.Counts {
		cells := []string{h.Labels[i]}
		for _, n := range row {
			cells = append(cells, fmt.Sprint(n))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

var markdownEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "<", "&lt;", ">", "&gt;", "&", "&amp;", "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "~", `\~`)

// markdown escapes a text for Markdown, on one line.
func markdown(text string) string {
	text = markdownEscapes.Replace(monitor.Printable(text))
	if strings.HasPrefix(text, "#") || strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
		text = `\` + text
	}
	return text
}
