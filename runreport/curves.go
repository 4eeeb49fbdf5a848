package runreport

import (
	"slices"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train"
)

// curvePanels are the panels of training, in order; those of metrics come after the
// first, and those of time have their own section.
var curvePanels = []string{monitor.PanelLoss, monitor.PanelRate, monitor.PanelNorm, monitor.PanelScale}

// curves returns the section of training curves.
func (x *Run) curves() report.Section {
	s := report.Section{Title: "Curves"}
	for _, panel := range panelsOf(x) {
		s.Figures = append(s.Figures, x.panel(x.Series, panel, 0, train.MetricsFile)...)
	}
	return s
}

// panelsOf returns the panels of training that any of the runs has.
func panelsOf(runs ...*Run) []string {
	var metrics []string
	for _, x := range runs {
		for _, s := range x.Series {
			if len(s.Panel) > len(monitor.PanelMetric) && s.Panel[:len(monitor.PanelMetric)] == monitor.PanelMetric && !slices.Contains(metrics, s.Panel) {
				metrics = append(metrics, s.Panel)
			}
		}
	}
	slices.Sort(metrics)
	return slices.Insert(slices.Clone(curvePanels), 1, metrics...)
}

// machinePanels are the panels of the machine and the card over time.
var machinePanels = []string{monitor.PanelUse, monitor.PanelMemory, monitor.PanelPower, monitor.PanelHeat, monitor.PanelClock, monitor.PanelSlowed}

// machine returns the section with samples of the machine and the card.
func (x *Run) machine() report.Section {
	s := report.Section{Title: "Machine"}
	for _, panel := range machinePanels {
		s.Figures = append(s.Figures, x.panel(x.Machine, panel, 60, monitor.SamplesFile)...)
	}
	return s
}

// panel returns the picture of a panel, if the run has one. X is in updates or, if
// seconds is not 0, in units of that many seconds since the run began.
func (x *Run) panel(all []monitor.Series, panel string, seconds float64, source string) []report.Figure {
	chart, points := report.Chart{X: "update", Y: panelTitle(panel)}, 0
	unit := ""
	for _, s := range all {
		if s.Panel != panel {
			continue
		}
		c := series(s, seconds, float64(x.Began.UnixMilli())/1e3)
		if s.Unit == "bytes" {
			for i := range c.Y {
				c.Y[i] /= 1 << 30
			}
			s.Unit = "GiB"
		}
		unit, points = s.Unit, max(points, s.Points)
		chart.Series = append(chart.Series, c)
	}
	if len(chart.Series) == 0 {
		return nil
	}
	if len(chart.Series) == 1 && panel != monitor.PanelUse {
		chart.Series[0].Name = "" // the axis says it
	}
	if unit != "" && panel != monitor.PanelUse {
		chart.Y += ", " + unit
	}
	if seconds != 0 {
		chart.X = "minutes since the run began"
	}
	caption := panelTitle(panel)
	if points > 2*curveWidth+2 {
		caption += ", the lowest and the highest of " + size.Thousands(int64(points)) + " points"
	}
	return []report.Figure{{Caption: caption, Drawing: chart, Source: source}}
}

// series converts a curve for a picture.
func series(s monitor.Series, seconds, began float64) report.Series {
	name := label(s.Name)
	if s.Unit == "percent" || s.Unit == "percent of a processor" {
		name += " (" + s.Unit + ")"
	}
	c := report.Series{Name: name, X: make([]float64, len(s.X)), Y: make([]float64, len(s.Y))}
	for i := range s.X {
		c.X[i], c.Y[i] = float64(s.X[i]), float64(s.Y[i])
		if seconds != 0 {
			c.X[i] = (c.X[i] - began) / seconds
		}
	}
	return c
}

func panelTitle(panel string) string {
	if len(panel) > len(monitor.PanelMetric) && panel[:len(monitor.PanelMetric)] == monitor.PanelMetric {
		panel = panel[len(monitor.PanelMetric):]
	}
	return label(panel)
}

// gigabytes prints bytes.
func gigabytes(n int64) string {
	if n == 0 {
		return ""
	}
	return size.Bytes(n).String()
}
