package runreport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/system/report"
)

// The formats of a report.
const (
	HTML     = "html"
	Markdown = "md"
	JSON     = "json"
)

// FileName is the name of a report's file, without its format.
const FileName = "report"

// Text returns the report in a format. In Markdown, pictures are files if there are any.
func (r *Report) Text(format string, pictures Pictures) ([]byte, error) {
	var b bytes.Buffer
	switch format {
	case HTML:
		err := r.Page().Write(&b)
		return b.Bytes(), err
	case Markdown:
		p := r.Page()
		err := p.WriteMarkdown(&b, func(section, figure int) string { return pictures.name(p, section, figure) })
		return b.Bytes(), err
	case JSON:
		text, err := json.MarshalIndent(r, "", "  ")
		return append(text, '\n'), err
	}
	return nil, fmt.Errorf("runreport: no format %q", format)
}

// Pictures is the format in which charts are written as files: "" or "svg".
type Pictures string

// Write writes the report to a folder, which it creates, and its charts as files if
// requested. It returns the path of the report and the number of pictures.
func (r *Report) Write(dir, format string, pictures Pictures) (path string, n int, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", 0, err
	}
	text, err := r.Text(format, pictures)
	if err != nil {
		return "", 0, err
	}
	// The page is written last: it must not name a picture that does not exist.
	if n, err = r.draw(dir, pictures); err != nil {
		return "", 0, err
	}
	path = filepath.Join(dir, FileName+"."+format)
	if err := durable.Replace(path, text); err != nil {
		return "", 0, err
	}
	return path, n, nil
}

// draw writes the pictures to a folder and returns how many.
func (r *Report) draw(dir string, pictures Pictures) (n int, err error) {
	if pictures == "" {
		return 0, nil
	}
	p := r.Page()
	for i, s := range p.Sections {
		for k, f := range s.Figures {
			picture, err := f.File(string(pictures))
			if err == nil {
				err = durable.Replace(filepath.Join(dir, pictures.name(p, i, k)), picture)
			}
			if err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// name returns the file name of a picture: its number in the page and what it shows.
func (x Pictures) name(p *report.Page, section, figure int) string {
	if x == "" {
		return ""
	}
	n := figure + 1
	for _, s := range p.Sections[:section] {
		n += len(s.Figures)
	}
	return fmt.Sprintf("%02d-%s.%s", n, slug(p.Sections[section].Figures[figure].Caption), x)
}

// slug turns a text into a part of a file name: its first letters and digits in lower
// case.
func slug(text string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case r == ' ' || r == '-' || r == '_':
			b.WriteByte('-')
		}
		if b.Len() >= 40 {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}
