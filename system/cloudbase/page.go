package cloudbase

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train"
)

// page returns the content of report.html.
func page(c *config.Config, o *Outcome, bySide map[string]*measured, h *train.History) *report.Page {
	p := &report.Page{Title: "cloudbase", Lead: strings.Join(lead(o), "\n")}
	if c.Preset != "" {
		p.Title += ": " + c.Preset
	}
	if generated(c) {
		p.Lead += "\nThe flights are simulated (section synthetic of the configuration): this shows how well the network reads known geometry, and says nothing about real clouds."
	}
	for _, name := range sideNames {
		if j := bySide[name]; j != nil {
			p.Sections = append(p.Sections, sideSection(c, o, name, j))
		}
	}
	if len(h.Updates) > 0 {
		p.Sections = append(p.Sections, trainingSection(h))
	}
	return p
}

func sideSection(c *config.Config, o *Outcome, name string, j *measured) report.Section {
	s := o.Sides[name]
	section := report.Section{
		Title: "The " + name + " flights",
		Text: fmt.Sprintf("Always predicting %.2f km, the mean of the training flights, has a root mean square error of %.3f km; the skill of the model over it is %.3f. The predictions vary %.0f %% as much as the true values.",
			o.Scaler.Base.Mean, float64(s.Baseline), float64(s.Skill), 100*float64(s.Spread)),
	}
	switch name {
	case "validation":
		section.Text += " The best weights were chosen on these flights: expect slightly worse results on others."
	case "calibration":
		section.Text += " The intervals were calibrated on these flights: so they have the configured coverage here by construction."
	}
	rows := [][]string{row("all", s.Figures)}
	var names []string
	for n := range s.Flights {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		rows = append(rows, row(n, s.Flights[n]))
	}
	section.Tables = []report.Table{{
		Caption: "Errors in km; percentiles of the absolute error", Rows: rows,
		Header: []string{"flight", "windows", "R2", "RMSE", "MAE", "MAPE", "bias", "deviation", "25 %", "50 %", "75 %", "90 %", "95 %", "covered"},
	}}
	section.Figures = append(section.Figures, scatter(j), residuals(j), residualsOverTruth(j))
	by := j.byFlight()
	for _, n := range names {
		section.Figures = append(section.Figures, series(c, n, by[n], float64(o.Interval.HalfWidth)))
	}
	return section
}

func row(name string, f Figures) []string {
	out := []string{name, fmt.Sprint(f.Samples), f3(float64(f.R2)), f3(float64(f.RMSE)), f3(float64(f.MAE)), fmt.Sprintf("%.1f %%", float64(f.MAPE)), f3(float64(f.MeanError)), f3(float64(f.StdError))}
	for _, q := range f.full.Quantiles {
		out = append(out, f3(q))
	}
	return append(out, fmt.Sprintf("%.1f %%", 100*float64(f.Coverage)))
}

func f3(v float64) string { return fmt.Sprintf("%.3f", v) }

// ends returns the range of the predicted and true heights.
func (j *measured) ends() [2]float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range j.Truth {
		low, high = min(low, j.Truth[i], j.Predicted[i]), max(high, j.Truth[i], j.Predicted[i])
	}
	return [2]float64{low, high}
}

func scatter(j *measured) report.Figure {
	ends := j.ends()
	return report.Figure{Caption: "Predicted against true cloud base", Drawing: report.Chart{
		X: "true (km)", Y: "predicted (km)", XRange: ends, YRange: ends,
		Series: []report.Series{{X: j.Truth, Y: j.Predicted, Style: report.Points}, {Name: "perfect", X: ends[:], Y: ends[:], Style: report.Dashed}},
	}}
}

func (j *measured) errors() (e []float64) {
	for i := range j.Truth {
		e = append(e, j.Predicted[i]-j.Truth[i])
	}
	return e
}

func residuals(j *measured) report.Figure {
	e := j.errors()
	most := 0.0
	for _, v := range e {
		most = max(most, math.Abs(v))
	}
	return report.Figure{Caption: "Errors", Drawing: report.Chart{X: "predicted - true (km)", Y: "windows", Series: []report.Series{report.Histogram("", e, -most, most, 31)}}}
}

func residualsOverTruth(j *measured) report.Figure {
	ends := j.ends()
	return report.Figure{Caption: "Errors over the true cloud base; a downward slope means predictions are drawn to the mean", Drawing: report.Chart{
		X: "true (km)", Y: "predicted - true (km)",
		Series: []report.Series{{X: j.Truth, Y: j.errors(), Style: report.Points}, {Name: "none", X: ends[:], Y: []float64{0, 0}, Style: report.Dashed}},
	}}
}

// series shows a flight over time.
func series(c *config.Config, name string, j *measured, half float64) report.Figure {
	var x, low, high []float64
	for i, w := range j.windows {
		x = append(x, w.flight.Time[w.middle(config.Of[Model](c).Frames)])
		low, high = append(low, j.Predicted[i]-half), append(high, j.Predicted[i]+half)
	}
	lines := []report.Series{{Name: "true", X: x, Y: j.Truth}, {Name: "predicted", X: x, Y: j.Predicted}}
	if !math.IsInf(half, 0) {
		lines = append(lines, report.Series{Name: "interval", X: x, Y: low, Style: report.Dashed}, report.Series{X: x, Y: high, Style: report.Dashed})
	}
	return report.Figure{Caption: "Flight " + name, Drawing: report.Chart{X: "time (s)", Y: "cloud base (km)", Series: lines}}
}

func trainingSection(h *train.History) report.Section {
	figures := []report.Figure{{Caption: "Training loss by update", Drawing: report.Chart{X: "update", Y: "loss", Series: []report.Series{{Name: "training", X: h.Updates, Y: h.Loss}}}}}
	if len(h.Evals) > 1 {
		figures = append(figures,
			report.Figure{Caption: "Root mean square error on the validation flights", Drawing: report.Chart{X: "update", Y: "km", Series: []report.Series{{X: h.Evals, Y: h.Metrics["rmse"]}}}},
			report.Figure{Caption: "Validation figures", Drawing: report.Chart{X: "update", Y: "share", Series: []report.Series{
				{Name: "R2", X: h.Evals, Y: h.Metrics["r2"]}, {Name: "spread", X: h.Evals, Y: h.Metrics["spread"]},
			}}})
	}
	return report.Section{Title: "Training", Figures: figures}
}
