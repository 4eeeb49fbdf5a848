package cli

import (
	"fmt"
	"math"
	"strings"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/system/report"
)

// benchPage renders the document as a page with charts.
func benchPage(d *benchDocument) *report.Page {
	var names, lead []string
	for _, c := range d.Configurations {
		names = append(names, c.Name)
		if c.Why != "" {
			lead = append(lead, fmt.Sprintf("%s: synthetic batches of its own shapes, random weights (%s).", c.Name, c.Why))
		}
	}
	lead = append(lead, fmt.Sprintf("%s, %s, %s, snug %s. Medians of %s after %d, with the range.", d.Device, size.Of(d.Threads, "thread"), d.Date, d.Snug, size.Of(d.Updates, "update"), d.Warmup))
	if busy := d.busy(); busy != "" {
		lead = append(lead, strings.ToUpper(busy[:1])+busy[1:]+".")
	}
	if d.Interrupted {
		lead = append(lead, "Interrupted: this is what was measured until then.")
	}
	p := &report.Page{Title: "bench: " + strings.Join(names, " against "), Lead: strings.Join(lead, "\n")}
	for _, s := range d.Sweeps {
		p.Sections = append(p.Sections, sweepSection(s))
	}
	return p
}

func sweepSection(s *session.Sweep) report.Section {
	x := report.Section{Title: s.Name, Text: s.Title + "."}
	if s.Refused != "" {
		x.Text += " Not measured: " + s.Refused + "."
	}
	if len(s.Rows) > 0 {
		cells := sweepTable(s)
		switch s.Name {
		case session.SweepAgainst:
			cells = againstTable(s)
		case session.SweepWorkers, session.SweepPrefetch:
			cells = loaderTable(s)
		}
		caption := "* as configured"
		if of := sharesOf(s); of != "" {
			caption += "; share: of the " + of
		}
		x.Tables = append(x.Tables, report.Table{Caption: caption, Header: cells[0], Rows: cells[1:]})
		x.Figures = sweepFigures(s)
	}
	if len(s.Skipped) > 0 {
		t := report.Table{Caption: "Not measured", Text: true, Header: []string{"configuration", "planned", "why"}}
		for _, k := range s.Skipped {
			planned := ""
			if k.Total > 0 {
				planned = size.Bytes(k.Total).String()
			}
			t.Rows = append(t.Rows, []string{k.Name, planned, k.Reason})
		}
		x.Tables = append(x.Tables, t)
	}
	return x
}

// column returns one value of each row.
func column(s *session.Sweep, f func(*session.Measured) float64) (out []float64) {
	for i := range s.Rows {
		out = append(out, f(&s.Rows[i]))
	}
	return out
}

const mebibyte = 1 << 20

// sweepFigures returns the charts of a sweep: over the value that it varies or, if that is not a number, time
// over memory.
func sweepFigures(s *session.Sweep) []report.Figure {
	unit := s.Rows[0].Unit
	rate := column(s, func(r *session.Measured) float64 { return r.Rate })
	planned := column(s, func(r *session.Measured) float64 { return float64(r.Total) / mebibyte })
	taken := column(s, func(r *session.Measured) float64 { return float64(used(r)) / mebibyte })
	if s.Axis == "" {
		ms := func(f func(*session.Measured) float64) []float64 {
			return column(s, func(r *session.Measured) float64 { return 1e3 * f(r) })
		}
		median := ms(func(r *session.Measured) float64 { return r.Median })
		c := report.Chart{X: "memory planned, MiB", Y: "update, ms", Series: []report.Series{{X: planned, Y: median, Style: report.Points}}}
		for i := range s.Rows {
			r := &s.Rows[i]
			c.Marks = append(c.Marks, report.Mark{X: planned[i], Y: median[i], Name: r.Name})
			c.Series = append(c.Series, report.Series{X: []float64{planned[i], planned[i]}, Y: []float64{1e3 * r.Best, 1e3 * r.Worst}})
		}
		return []report.Figure{{Caption: "Time against memory; lines are the ranges.", Drawing: c}}
	}
	x := column(s, func(r *session.Measured) float64 { return math.Log2(r.At) })
	axis := "log2 of " + s.Axis
	speed := report.Chart{X: axis, Y: unit + "/s", Series: []report.Series{{Name: "in training", X: x, Y: rate}}}
	if s.Name == session.SweepWorkers || s.Name == session.SweepPrefetch {
		speed.Series = append(speed.Series, report.Series{Name: "loader alone", Style: report.Dashed, X: x, Y: column(s, func(r *session.Measured) float64 { return r.Loader.Median })})
		wait := report.Chart{X: axis, Y: "waiting for data, ms an update", Series: []report.Series{{X: x, Y: column(s, func(r *session.Measured) float64 { return 1e3 * r.Wait })}}}
		return []report.Figure{{Caption: "Speed.", Drawing: speed}, {Caption: "What an update waits for its data.", Drawing: wait}}
	}
	memory := report.Chart{X: axis, Y: "memory, MiB", Series: []report.Series{{Name: "planned", X: x, Y: planned}, {Name: "used", Style: report.Dashed, X: x, Y: taken}}}
	return []report.Figure{{Caption: "Speed.", Drawing: speed}, {Caption: "Memory, as planned and as used.", Drawing: memory}}
}
