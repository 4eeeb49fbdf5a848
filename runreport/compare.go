package runreport

import (
	"fmt"
	"maps"
	"slices"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train"
)

// compare lists how the runs differ.
func (r *Report) compare() {
	keys := map[string]bool{}
	for _, x := range r.Runs {
		for k := range x.Info.Settings {
			keys[k] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		d := Difference{Name: k}
		for _, x := range r.Runs {
			d.Values = append(d.Values, x.Info.Settings[k])
		}
		if slices.ContainsFunc(d.Values, func(v string) bool { return v != d.Values[0] }) {
			r.Settings = append(r.Settings, d)
		}
	}
	add := func(name string, value func(x *Run) string) {
		d, any := Difference{Name: name}, false
		for _, x := range r.Runs {
			v := value(x)
			d.Values, any = append(d.Values, v), any || v != ""
		}
		if any {
			r.Results = append(r.Results, d)
		}
	}
	add("state", (*Run).state)
	add("updates", func(x *Run) string { return fmt.Sprintf("%d of %d", x.Update, x.Updates) })
	add("parameters", func(x *Run) string { return count(x.Info.Parameters) })
	add("precision", func(x *Run) string { return string(x.Info.Precision) })
	add("last training loss", func(x *Run) string { return known(float64(x.Latest.Loss)) })
	add("best evaluation at update", func(x *Run) string {
		if e := x.best(); e != nil {
			return fmt.Sprint(e.Update)
		}
		return ""
	})
	var best []*monitor.Evaluation
	for _, x := range r.Runs {
		if e := x.best(); e != nil {
			best = append(best, e)
		}
	}
	for _, name := range metrics(best...) {
		add(label(name), func(x *Run) string {
			if e := x.best(); e != nil {
				return figureOf(e, name)
			}
			return ""
		})
	}
	add("seconds of all updates", func(x *Run) string { return known(x.TotalTime.Seconds) })
	add("seconds of an update", func(x *Run) string {
		if x.TotalTime.Updates == 0 {
			return ""
		}
		return known(x.TotalTime.Seconds / float64(x.TotalTime.Updates))
	})
	add("units of the data per second", func(x *Run) string { return x.speed() })
	add("planned memory", func(x *Run) string { return gigabytes(x.Memory.Planned) })
	add("peak memory", func(x *Run) string { return gigabytes(x.Memory.Peak) })
}

// speed returns the mean speed over the run, not counting evaluations and checkpoints.
func (x *Run) speed() string {
	t := x.TotalTime
	seconds := t.Seconds * (t.Compute + t.Data)
	if seconds <= 0 || x.Info.UnitsPer == 0 {
		return ""
	}
	return fmt.Sprintf("%.5g %s", float64(t.Updates)*float64(x.Info.UnitsPer)/seconds, unit(x))
}

func count(n int64) string {
	if n == 0 {
		return ""
	}
	return size.Thousands(n)
}

func known(v float64) string {
	if v != v {
		return ""
	}
	return fmt.Sprintf("%.5g", v)
}

// comparison returns the sections that compare runs.
func (r *Report) comparison() []report.Section {
	header := []string{""}
	for _, x := range r.Runs {
		header = append(header, x.Name)
	}
	table := func(caption, source string, differences []Difference) report.Table {
		t := report.Table{Caption: caption, Source: source, Header: header}
		for _, d := range differences {
			t.Rows = append(t.Rows, append([]string{d.Name}, d.Values...))
		}
		return t
	}
	out := []report.Section{{Title: "The runs side by side", Tables: []report.Table{
		table("Metrics are those of each run's best evaluation.", train.MetricsFile+", "+monitor.InfoFile+", "+monitor.SamplesFile, r.Results),
	}}}
	settings := report.Section{Title: "Settings that differ", Text: "No setting differs."}
	if len(r.Settings) > 0 {
		t := table("", monitor.InfoFile, r.Settings)
		t.Text = true
		for _, row := range t.Rows {
			for i, v := range row {
				row[i] = orNone(v)
			}
		}
		settings.Text, settings.Tables = "", []report.Table{t}
	}
	curves := report.Section{Title: "Curves of all runs"}
	for _, panel := range append(panelsOf(r.Runs...), monitor.PanelSpeed) {
		curves.Figures = append(curves.Figures, r.overlaid(panel)...)
	}
	return append(out, settings, curves)
}

// overlaid returns the pictures of a panel, each with a curve of every run: training and
// held-out loss have one each.
func (r *Report) overlaid(panel string) (out []report.Figure) {
	var names []string
	for _, x := range r.Runs {
		for _, s := range x.Series {
			if s.Panel == panel && !slices.Contains(names, s.Name) {
				names = append(names, s.Name)
			}
		}
	}
	for _, name := range names {
		chart := report.Chart{X: "update", Y: label(name)}
		for _, x := range r.Runs {
			for _, s := range x.Series {
				if s.Panel == panel && s.Name == name {
					c := series(s, 0, 0)
					c.Name = x.Name
					chart.Series = append(chart.Series, c)
					if s.Unit != "" {
						chart.Y = label(name) + ", " + s.Unit
					}
				}
			}
		}
		out = append(out, report.Figure{Caption: label(name), Drawing: chart, Source: train.MetricsFile})
	}
	return out
}
