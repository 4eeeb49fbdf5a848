package runreport

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train"
)

// Page returns the report as a readable page.
func (r *Report) Page() *report.Page {
	p := &report.Page{}
	if len(r.Runs) == 1 {
		x := r.Runs[0]
		p.Title, p.Lead = x.Name, x.lead()
		p.Sections = x.sections()
		return p
	}
	var names, leads []string
	for _, x := range r.Runs {
		names, leads = append(names, x.Name), append(leads, x.Name+": "+x.lead())
	}
	p.Title, p.Lead = strings.Join(names, ", "), strings.Join(leads, "\n")
	p.Sections = r.comparison()
	for _, x := range r.Runs {
		part := x.sections()
		part[0].Part = x.Name
		p.Sections = append(p.Sections, part...)
	}
	return p
}

// lead says what was trained and the result, in a sentence or two.
func (x *Run) lead() string {
	var b strings.Builder
	what := orUnknown(x.Info.System)
	if x.Info.Preset != "" {
		what += ", preset " + x.Info.Preset
	}
	fmt.Fprintf(&b, "%s: %s after %s of %s.", what, x.state(), size.Thousands(x.Update), size.Of(x.Updates, "update"))
	if e := x.best(); e != nil {
		name := x.Info.Monitored
		fmt.Fprintf(&b, " Best %s %s at update %d", label(name), figure(e.Metrics[name]), e.Update)
		for _, bl := range x.Info.Baselines {
			fmt.Fprintf(&b, ", %s %s", bl.Name, figure(monitor.Number(bl.Value)))
		}
		b.WriteString(".")
	}
	return b.String()
}

// state says how the run ended, judging by its folder: whether one without an end is
// still running depends on the time, which a report does not know.
func (x *Run) state() string {
	if e := x.Info.End; e != nil {
		return string(e.State)
	}
	if x.State.Over() && x.State != monitor.Died {
		return string(x.State)
	}
	return "no end is recorded"
}

// best returns the best evaluation, as the run judged it; nil if there is none.
func (x *Run) best() *monitor.Evaluation {
	for i := range slices.Backward(x.Evaluations) {
		if e := &x.Evaluations[i]; e.Best {
			return e
		}
	}
	return nil
}

// sections returns the sections of one run, never none.
func (x *Run) sections() []report.Section {
	out := []report.Section{x.about()}
	for _, s := range []report.Section{
		x.evaluations(), x.curves(), x.time(), x.memory(), x.machine(), x.attention(), x.warnings(),
	} {
		if s.Tables != nil || s.Figures != nil || s.Text != "" {
			out = append(out, s)
		}
	}
	return slices.Insert(out, min(2, len(out)), x.ofSystem()...)
}

// ofSystem returns the system's own page.
func (x *Run) ofSystem() []report.Section {
	p := x.Results
	switch {
	case p == nil && x.OldPage != "":
		return []report.Section{{Title: "Results of the system", Text: fmt.Sprintf("An earlier version wrote them: %s in %s. snug eval writes them again.", x.OldPage, x.Path)}}
	case p == nil:
		return nil
	}
	out := []report.Section{{Title: "Results: " + p.Title, Text: p.Lead}}
	for _, s := range p.Sections {
		s.Tables, s.Figures = slices.Clone(s.Tables), slices.Clone(s.Figures)
		for i := range s.Tables {
			s.Tables[i].Source = report.DataFile
		}
		for i := range s.Figures {
			s.Figures[i].Source = report.DataFile
		}
		s.Title, s.Part = "Results: "+s.Title, ""
		out = append(out, s)
	}
	return out
}

// about says what was trained on what.
func (x *Run) about() report.Section {
	i := &x.Info
	t := report.Table{Text: true, Source: monitor.InfoFile}
	add := func(name, value string) {
		if value != "" && value != "[]" {
			t.Rows = append(t.Rows, []string{name, value})
		}
	}
	add("state", x.ending())
	add("system", i.System)
	add("preset", i.Preset)
	add("phase", i.Phase)
	add("data", i.Settings["data.source"])
	add("held out", i.Settings["data.validation"])
	switch {
	case i.Parameters > 0 && i.Trained == 0: // an earlier version did not record it
		add("parameters", size.Thousands(i.Parameters))
	case i.Parameters > 0:
		add("parameters", fmt.Sprintf("%s, %s of them trained", size.Thousands(i.Parameters), size.Thousands(i.Trained)))
	}
	add("device", i.Device)
	add("kernels", i.Arithmetic)
	for _, n := range i.Notes {
		add("", n)
	}
	add("precision", join(string(i.Precision), i.Reason))
	if i.BatchSize > 0 {
		add("an update", fmt.Sprintf("%d × %d rows, %s %s", i.BatchSize, max(1, i.Accumulation), size.Thousands(i.UnitsPer), i.Unit))
	}
	add("updates", fmt.Sprintf("%d of %d", x.Update, x.Updates))
	if i.From > 0 {
		add("resumed", fmt.Sprintf("the last session began at update %d", i.From))
	}
	add("began", stamp(x.Began))
	add("last sign of life", stamp(x.Seen))
	add("machine", i.Host)
	add("snug", i.Snug)
	add("run", i.Run)
	s := report.Section{Title: "What was trained", Tables: []report.Table{t}}
	switch {
	case x.Changed == nil:
	case len(x.Changed) == 0:
		s.Text = "Every setting is that of " + x.origin() + "."
	default:
		c := report.Table{Caption: "Settings that differ from " + x.origin() + ".", Source: monitor.InfoFile, Text: true, Header: []string{"setting", "this run", x.origin()}}
		for _, d := range x.Changed {
			c.Rows = append(c.Rows, []string{d.Key, orNone(d.Value), orNone(d.Preset)})
		}
		s.Tables = append(s.Tables, c)
	}
	if len(x.Problems) > 0 {
		p := report.Table{Caption: "Files that could not be read: their contents are not in this report.", Text: true}
		for _, text := range x.Problems {
			p.Rows = append(p.Rows, []string{text})
		}
		s.Tables = append(s.Tables, p)
	}
	return s
}

// origin names what the settings of a run are compared with.
func (x *Run) origin() string {
	if x.Info.Preset == "" {
		return "the defaults of " + x.Info.System
	}
	return "preset " + x.Info.Preset
}

func (x *Run) ending() string {
	text := x.state()
	if e := x.Info.End; e != nil {
		return join(text, e.Text)
	}
	if text == "no end is recorded" {
		text += ": it was still training when this was read, or it died"
	}
	return text
}

// evaluations returns the figures on held-out data, with the baselines.
func (x *Run) evaluations() report.Section {
	s := report.Section{Title: "Evaluation on held-out data"}
	if len(x.Evaluations) == 0 {
		return report.Section{}
	}
	best, last := x.best(), &x.Evaluations[len(x.Evaluations)-1]
	if best == nil {
		best = last
	}
	t := report.Table{Source: train.MetricsFile, Header: []string{"metric", fmt.Sprintf("best, update %d", best.Update), fmt.Sprintf("last, update %d", last.Update)}}
	for _, name := range metrics(best, last) {
		row := []string{label(name), figureOf(best, name), figureOf(last, name)}
		if name == x.Info.Monitored {
			row[0] += " (monitored)"
		}
		t.Rows = append(t.Rows, row)
	}
	s.Tables = append(s.Tables, t)
	if len(x.Info.Baselines) > 0 {
		b := report.Table{Caption: fmt.Sprintf("Baselines of %s: results without the model.", label(x.Info.Monitored)), Source: monitor.InfoFile, Header: []string{"baseline", label(x.Info.Monitored), "best of the run minus it"}}
		for _, bl := range x.Info.Baselines {
			b.Rows = append(b.Rows, []string{bl.Name, figure(monitor.Number(bl.Value)), figure(best.Metrics[x.Info.Monitored] - monitor.Number(bl.Value))})
		}
		s.Tables = append(s.Tables, b)
	}
	return s
}

// time says where the time went.
func (x *Run) time() report.Section {
	t := x.TotalTime
	if t.Updates == 0 {
		return report.Section{}
	}
	s := report.Section{Title: "Time"}
	rows := report.Table{Caption: fmt.Sprintf("Where the time of %s went.", size.Of(t.Updates, "update")), Source: train.MetricsFile, Header: []string{"", "seconds", "share"}}
	for _, part := range []struct {
		name  string
		share float64
	}{{"computing", t.Compute}, {"waiting for data", t.Data}, {"waiting for checkpoints", t.Save}, {"evaluating", t.Evaluation}, {"all", 1}} {
		rows.Rows = append(rows.Rows, []string{part.name, fmt.Sprintf("%.1f", part.share*t.Seconds), percent(part.share)})
	}
	s.Tables = append(s.Tables, rows)
	p := &x.Info.Plan
	if p.Seconds > 0 {
		mean := t.Seconds * (t.Compute + t.Data) / float64(t.Updates)
		s.Tables = append(s.Tables, report.Table{
			Caption: "An update, as planned and as measured.", Source: monitor.InfoFile + ", " + train.MetricsFile, Header: []string{"", "planned", "measured"},
			Rows: [][]string{
				{"seconds", fmt.Sprintf("%.4g", p.Seconds), fmt.Sprintf("%.4g", mean)},
				{unit(x) + "/s", fmt.Sprintf("%.4g", p.Rate), fmt.Sprintf("%.4g", float64(x.Info.UnitsPer)/mean)},
			},
		})
	}
	for _, panel := range []string{monitor.PanelUpdate, monitor.PanelSpeed, monitor.PanelShare} {
		s.Figures = append(s.Figures, x.panel(x.Series, panel, 0, train.MetricsFile)...)
	}
	return s
}

// memory compares planned and used memory.
func (x *Run) memory() report.Section {
	m := x.Memory
	if m.Planned == 0 && m.Peak == 0 {
		return report.Section{}
	}
	s := report.Section{Title: "Memory"}
	of := "of the process"
	if m.Card {
		of = "of the card"
	}
	t := report.Table{Caption: "Planned and used, " + of + ".", Source: monitor.InfoFile + ", " + monitor.SamplesFile, Header: []string{"", "size", "bytes"}}
	for _, row := range []struct {
		name  string
		bytes int64
	}{{"planned", m.Planned}, {"of it the arena", m.Arena}, {"a plan may use", m.Capacity}, {"peak", m.Peak}, {"limit", m.Limit}} {
		if row.bytes > 0 {
			t.Rows = append(t.Rows, []string{row.name, size.Bytes(row.bytes).String(), size.Thousands(row.bytes)})
		}
	}
	s.Tables = append(s.Tables, t)
	if parts := x.Info.Plan.Components; len(parts) > 0 {
		c := report.Table{Caption: "The plan.", Source: monitor.InfoFile, Header: []string{"part", "size", "bytes"}}
		for _, part := range parts {
			c.Rows = append(c.Rows, []string{part.Name, size.Bytes(part.Bytes).String(), size.Thousands(part.Bytes)})
		}
		s.Tables = append(s.Tables, c)
	}
	return s
}

// attention returns alerts and advice.
func (x *Run) attention() report.Section {
	s := report.Section{Title: "Alerts and advice"}
	if len(x.Alerts) > 0 {
		t := report.Table{Source: train.MetricsFile + ", " + monitor.SamplesFile, Text: true, Header: []string{"alert", "what was seen", "what helps"}}
		for _, a := range x.Alerts {
			t.Rows = append(t.Rows, []string{strings.ReplaceAll(string(a.Kind), "_", " "), a.Text, a.Do})
		}
		s.Tables = append(s.Tables, t)
	}
	if len(x.Advice) > 0 {
		t := report.Table{Source: monitor.SamplesFile, Text: true, Header: []string{"advice", "because"}}
		for _, a := range x.Advice {
			t.Rows = append(t.Rows, []string{a.Do, a.Because})
		}
		s.Tables = append(s.Tables, t)
	}
	return s
}

// warningRows bounds the warnings of a report.
const warningRows = 50

// warnings returns the warnings in the log.
func (x *Run) warnings() report.Section {
	t := report.Table{Source: monitor.LogFile, Text: true, Header: []string{"time", "update", "level", "text"}}
	for _, l := range x.Log {
		if l.Level == monitor.LevelInfo {
			continue
		}
		t.Rows = append(t.Rows, []string{stamp(time.UnixMilli(int64(l.Time * 1e3))), fmt.Sprint(l.Update), string(l.Level), l.Text})
	}
	if t.Rows == nil {
		return report.Section{}
	}
	if n := len(t.Rows) - warningRows; n > 0 {
		t.Caption, t.Rows = fmt.Sprintf("The last %d; %d before them.", warningRows, n), t.Rows[n:]
	}
	return report.Section{Title: "Warnings and errors of the log", Tables: []report.Table{t}}
}

// metrics returns the names of what evaluations measured.
func metrics(evaluations ...*monitor.Evaluation) []string {
	var names []string
	for _, e := range evaluations {
		for name := range e.Metrics {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
