package web

import (
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/monitor"
)

// page is a report, or a picture of one, in a run directory.
type page struct {
	Name    string `json:"name"` // its path in the run directory
	Picture bool   `json:"picture,omitempty"`
}

// Bound on the files that are shown as reports.
const maxReports = 50

var reportPlaces = []string{"*.html", "*.svg", "*.png", "report/*.html", "report/*.svg", "report/*.png", "eval/*/*.html", "eval/*/*.svg", "eval/*/*.png"}

var contentTypes = map[string]string{".html": "text/html; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png"}

// reportsOf returns the reports in a run directory, the newest evaluation first. A link
// that leads out of it is ignored.
func reportsOf(dir string) (out []page) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil // a missing run shows it in its state
	}
	defer func() { _ = root.Close() }() // nothing to lose
	for _, pattern := range reportPlaces {
		names, err := fs.Glob(root.FS(), pattern)
		if err != nil {
			continue
		}
		slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(path.Dir(b), path.Dir(a)) })
		for _, name := range names {
			if info, err := root.Stat(name); err == nil && info.Mode().IsRegular() && info.Size() <= regular.Text {
				out = append(out, page{Name: name, Picture: filepath.Ext(name) != ".html"})
			}
		}
	}
	return out[:min(len(out), maxReports)]
}

// readIn reads a file of a run directory; nil if it cannot be read.
func readIn(dir, name string, most int64) []byte {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = root.Close() }() // nothing to lose
	if _, err := root.Stat(name); err != nil {
		return nil
	}
	raw, err := regular.ReadIn(root, name, most)
	if err != nil {
		return nil
	}
	return raw
}

// report answers with a report of a run: /report/ID/NAME. It is a separate page without
// scripts, in an origin of its own.
func (s *Server) report(w http.ResponseWriter, r *http.Request) {
	id, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/report/"), "/")
	var raw []byte
	err := s.hub.with(id, func(e entry) {
		// The name is in the list, so it leads nowhere else.
		if slices.ContainsFunc(s.hub.head(e.run).Reports, func(p page) bool { return p.Name == name }) {
			raw = readIn(e.run.Path(), name, regular.Text)
		}
	})
	if err != nil || raw == nil {
		fail(w, http.StatusNotFound, errNoPage)
		return
	}
	w.Header().Set("Content-Security-Policy", "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("Content-Type", contentTypes[filepath.Ext(name)])
	_, _ = w.Write(raw) // a closed page needs no answer
}

// maxWritten bounds how much of a model's text is shown.
const maxWritten = 64 << 10

// writtenText returns what the language model of a run wrote at its end, line by line,
// without anything a page would interpret; empty if it wrote nothing.
func writtenText(dir string) string {
	raw := readIn(dir, monitor.TextFile, maxWritten)
	lines := strings.Split(string(raw), "\n")
	for i := range lines {
		lines[i] = monitor.Printable(lines[i])
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
