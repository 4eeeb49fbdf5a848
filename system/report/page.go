// Package report makes pages of tables and charts, as one self-contained HTML file, as Markdown, or as data.
// A system writes a page about its results at the end of a run, and package runreport makes the reports on
// runs.
//
// A page shows all that it is given: values that are not finite are left out of a chart and counted below it,
// text is escaped, and the same page always gives the same bytes.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"html/template"
	"io"

	"github.com/snug-ml/snug/train/rundir"
)

// These are the names of the page in a run directory, as HTML and as data.
const (
	FileName = "report.html"
	DataFile = "page.json"
)

// Page is a report.
type Page struct {
	Title string `json:"title"`
	// Lead states the result in a few lines.
	Lead     string    `json:"lead,omitempty"`
	Sections []Section `json:"sections"`
}

// Section is a part of a page under a heading.
type Section struct {
	Title string `json:"title"`
	// Part is a heading above a group of sections, which ends where another begins; empty if none begins
	// here.
	Part    string   `json:"part,omitempty"`
	Text    string   `json:"text,omitempty"`
	Tables  []Table  `json:"tables,omitempty"`
	Figures []Figure `json:"figures,omitempty"`
}

// Table has one row for each item. The first column has names, and the other columns numbers, or texts if
// Text is set.
type Table struct {
	Caption string     `json:"caption,omitempty"`
	Source  string     `json:"source,omitempty"` // file that the numbers come from
	Text    bool       `json:"text,omitempty"`
	Header  []string   `json:"header,omitempty"`
	Rows    [][]string `json:"rows"`
}

// Figure is a chart with its caption.
type Figure struct {
	Caption string
	// Drawing is a [Chart] or a [Heatmap].
	Drawing Drawing
	Source  string // file that the numbers come from
}

// Drawing is something that can be drawn.
type Drawing interface{ svg() template.HTML }

// SVG returns the drawing itself.
func (f Figure) SVG() template.HTML { return f.Drawing.svg() }

// Write writes the page as HTML.
func (p *Page) Write(w io.Writer) error { return layout.Execute(w, p) }

// Save writes the page to a run directory, as HTML and as data.
func (p *Page) Save(dir *rundir.Dir) error {
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		return err
	}
	data, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(dir.Replace(FileName, b.Bytes()), dir.Replace(DataFile, append(data, '\n')))
}

var layout = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --rule: #d1d9e0; --page: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --rule: #3d444d; --page: #0d1117; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid var(--rule); padding-bottom: .2rem; }
p { max-width: 48rem; }
table { border-collapse: collapse; margin: .8rem 1.5rem .8rem 0; font-variant-numeric: tabular-nums; }
caption, figcaption { text-align: left; color: var(--soft); font-size: .87rem; padding: .2rem 0; }
th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--rule); text-align: right; }
th:first-child, td:first-child, .text th, .text td { text-align: left; }
.text td { white-space: pre-wrap; overflow-wrap: anywhere; vertical-align: top; } .text td:first-child { white-space: nowrap; }
.part { font-size: 1.35rem; margin-top: 3rem; }
.source { font-size: .9em; opacity: .8; } .source::before { content: "from "; }
section > .row { overflow-x: auto; }
.lead { white-space: pre-line; }
.row { display: flex; flex-wrap: wrap; gap: 1rem 2rem; align-items: flex-start; }
figure { margin: .5rem 0; max-width: 26rem; }
svg { width: 26rem; max-width: 100%; height: auto; font: 11px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .soft { fill: var(--soft); } svg .rule { stroke: var(--rule); }
</style>
</head>
<body>
<h1>{{.Title}}</h1>
{{with .Lead}}<p class="lead">{{.}}</p>{{end}}
{{range .Sections}}{{with .Part}}<h1 class="part">{{.}}</h1>
{{end}}<section>
<h2>{{.Title}}</h2>
{{with .Text}}<p>{{.}}</p>
{{end}}{{with .Tables}}<div class="row">
{{range .}}<table{{if .Text}} class="text"{{end}}>{{if or .Caption .Source}}<caption>{{.Caption}}{{with .Source}} <span class="source">{{.}}</span>{{end}}</caption>{{end}}
{{with .Header}}<tr>{{range .}}<th>{{.}}</th>{{end}}</tr>
{{end}}{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</table>
{{end}}</div>
{{end}}{{with .Figures}}<div class="row">
{{range .}}<figure>
{{.SVG}}
<figcaption>{{.Caption}}{{with .Source}} <span class="source">{{.}}</span>{{end}}</figcaption>
</figure>
{{end}}</div>
{{end}}</section>
{{end}}</body>
</html>
`))
