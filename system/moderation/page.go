package moderation

import (
	"fmt"
	"math"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
)

// lead states the result in a sentence or two.
func lead(o *Outcome) string {
	name, same := o.reported()
	r := o.Model[name]
	a := r.AtThreshold
	s := fmt.Sprintf("On the %s texts, at threshold %.3f: precision %.3f (95 %% interval %.3f to %.3f), recall %.3f, F1 %.3f (%.3f to %.3f); ROC AUC %.3f, average precision %.3f.",
		name, a.Threshold, a.Precision, a.PrecisionCI.Low, a.PrecisionCI.High, a.Recall, a.F1, a.F1CI.Low, a.F1CI.High, r.ROCAUC, r.PRAUC)
	if same {
		s += " The threshold was chosen on these texts: expect slightly worse results on others."
	}
	if v := o.DecisionRule; v.Precision > 0 && !v.Reached {
		s += fmt.Sprintf(" No threshold reached a precision of %g on the validation texts; the one with the best F1 was used.", v.Precision)
	}
	if b, ok := o.Baseline[name]; ok {
		s += fmt.Sprintf(" Bag of words: F1 %.3f, ROC AUC %.3f.", b.AtHalf.F1, b.ROCAUC)
	}
	return s
}

// page returns the content of report.html.
func page(c *config.Config, o *Outcome, scores map[string]*predictions, h *train.History) *report.Page {
	p := &report.Page{Title: "moderation", Lead: lead(o)}
	if c.Preset != "" {
		p.Title += ": " + c.Preset
	}
	for _, name := range []string{"test", "validation"} {
		if s := scores[name]; s != nil {
			p.Sections = append(p.Sections, splitSection(c, o, name, s))
		}
	}
	if len(h.Updates) > 0 {
		p.Sections = append(p.Sections, trainingSection(h))
	}
	p.Sections = append(p.Sections, dataSection(o))
	return p
}

func splitSection(c *config.Config, o *Outcome, name string, s *predictions) report.Section {
	r := o.Model[name]
	negative, positive := names(c)
	sec := report.Section{Title: "The " + name + " texts"}
	head := []string{"", "threshold", "precision", "recall", "F1", "accuracy", "flagged"}
	row := func(what string, f Figures) []string {
		return []string{what, f3(f.Threshold), interval(f.Precision, f.PrecisionCI), interval(f.Recall, f.RecallCI), interval(f.F1, f.F1CI), f3(f.Accuracy), fmt.Sprint(f.TP + f.FP)}
	}
	rows := [][]string{row("chosen threshold", r.AtThreshold), row("at 0.5, uncalibrated", r.AtHalf)}
	ranks := [][]string{{"model", f3(r.ROCAUC), f3(r.PRAUC), f3(r.LogLoss), f3(r.Brier), f3(r.ECE), f3(r.RawECE)}}
	if b, ok := o.Baseline[name]; ok {
		rows = append(rows, row("bag of words", b.AtHalf))
		ranks = append(ranks, []string{"bag of words", f3(b.ROCAUC), f3(b.PRAUC), f3(b.LogLoss), f3(b.Brier), f3(b.ECE), f3(b.RawECE)})
	}
	sec.Tables = []report.Table{
		{Caption: "Decisions; 95 % intervals in brackets", Header: head, Rows: rows},
		{Caption: "Probabilities", Header: []string{"", "ROC AUC", "average precision", "log loss", "Brier", "calibration error", "before scaling"}, Rows: ranks},
	}
	probs := s.probabilities(o.DecisionRule.Temperature)
	rank, err := metric.Rank(probs, s.Positive)
	if err != nil { // impossible: probabilities of finite logits are numbers
		sec.Text = err.Error()
		return sec
	}
	at := rank.At(o.DecisionRule.Threshold)
	sec.Figures = []report.Figure{
		{Caption: "Confusion at the chosen threshold", Drawing: report.Heatmap{Matrix: at.Matrix(negative, positive)}},
		roc(rank, at), precisionRecall(rank, at), sweep(rank, o.DecisionRule.Threshold), histograms(s, probs, negative, positive), reliability(s, o.DecisionRule.Temperature),
	}
	return sec
}

var unit = [2]float64{0, 1}

// curvePoints is the number of points drawn for a curve; more would not be visible.
const curvePoints = 400

// thin selects evenly spread operating points, including the first and the last.
func thin(all []metric.Operating) []metric.Operating {
	if len(all) <= curvePoints {
		return all
	}
	out := make([]metric.Operating, curvePoints)
	for i := range out {
		out[i] = all[i*(len(all)-1)/(curvePoints-1)]
	}
	return out
}

func roc(r *metric.Ranking, at metric.Operating) report.Figure {
	x, y := []float64{0}, []float64{0}
	for _, s := range thin(r.Steps()) {
		x, y = append(x, s.FalsePositiveRate()), append(y, s.Recall())
	}
	return report.Figure{
		Caption: fmt.Sprintf("Receiver operating characteristic, area %.4f", r.ROCAUC()),
		Drawing: report.Chart{X: "false positive rate", Y: "recall", XRange: unit, YRange: unit,
			Series: []report.Series{{Name: "model", X: x, Y: y}, {Name: "chance", X: unit[:], Y: unit[:], Style: report.Dashed}},
			Marks:  []report.Mark{{X: at.FalsePositiveRate(), Y: at.Recall(), Name: "chosen threshold"}}},
	}
}

func precisionRecall(r *metric.Ranking, at metric.Operating) report.Figure {
	var x, y []float64
	for _, s := range thin(r.Steps()) {
		x, y = append(x, s.Recall()), append(y, s.Precision())
	}
	p := r.Prevalence()
	return report.Figure{
		Caption: fmt.Sprintf("Precision over recall, average precision %.4f", r.AveragePrecision()),
		Drawing: report.Chart{X: "recall", Y: "precision", XRange: unit, YRange: unit,
			Series: []report.Series{{Name: "model", X: x, Y: y, Style: report.Step}, {Name: "flag at random", X: unit[:], Y: []float64{p, p}, Style: report.Dashed}},
			Marks:  []report.Mark{{X: at.Recall(), Y: at.Precision(), Name: "chosen threshold"}}},
	}
}

func sweep(r *metric.Ranking, threshold float64) report.Figure {
	var x []float64
	curves := []report.Series{{Name: "precision"}, {Name: "recall"}, {Name: "F1"}}
	for _, s := range r.Sweep(101) {
		x = append(x, s.Threshold)
		for i, v := range []float64{s.Precision(), s.Recall(), s.F1()} {
			if i == 0 && s.TP+s.FP == 0 {
				v = math.NaN() // precision is undefined if nothing is flagged
			}
			curves[i].Y = append(curves[i].Y, v)
		}
	}
	for i := range curves {
		curves[i].X = x
	}
	curves = append(curves, report.Series{Name: "chosen threshold", X: []float64{threshold, threshold}, Y: unit[:], Style: report.Dashed})
	best := "no threshold"
	if b, ok := r.BestF1(); ok {
		best = fmt.Sprintf("the best F1 is %.3f at %.3f", b.F1(), b.Threshold)
	}
	return report.Figure{Caption: "Every threshold; " + best, Drawing: report.Chart{X: "threshold", Y: "share", XRange: unit, YRange: unit, Series: curves}}
}

func histograms(s *predictions, probs []float64, negative, positive string) report.Figure {
	var by [labels][]float64
	for i, p := range probs {
		k := class(s.Positive[i])
		by[k] = append(by[k], p)
	}
	series := []report.Series{report.Histogram(negative, by[0], 0, 1, 25), report.Histogram(positive, by[1], 0, 1, 25)}
	for k := range series {
		n := float64(max(1, len(by[k])))
		for i := range series[k].Y {
			series[k].Y[i] /= n
		}
	}
	return report.Figure{Caption: "Predicted probabilities by class, each adding up to 1", Drawing: report.Chart{X: "probability of " + positive, Y: "share of the class", XRange: unit, Series: series}}
}

func reliability(s *predictions, temperature float64) report.Figure {
	curve := func(name string, t float64) (report.Series, float64) {
		out := report.Series{Name: name}
		bins := metric.Reliability(s.probabilities(t), s.Positive, reliabilityBins)
		for _, b := range bins {
			if b.Count > 0 {
				out.X, out.Y = append(out.X, b.Predicted), append(out.Y, b.Observed)
			}
		}
		return out, metric.ECE(bins)
	}
	scaled, after := curve(fmt.Sprintf("temperature %.2f", temperature), temperature)
	raw, before := curve("uncalibrated", 1)
	return report.Figure{
		Caption: fmt.Sprintf("Reliability: calibration error %.3f, without temperature %.3f", after, before),
		Drawing: report.Chart{X: "predicted probability", Y: "observed share", XRange: unit, YRange: unit,
			Series: []report.Series{scaled, raw, {Name: "perfect", X: unit[:], Y: unit[:], Style: report.Dashed}}},
	}
}

func trainingSection(h *train.History) report.Section {
	figs := []report.Figure{{
		Caption: "Loss: training by update, weighted by class; validation unweighted",
		Drawing: report.Chart{X: "update", Y: "loss (nats)", Series: []report.Series{
			{Name: "training", X: h.Updates, Y: h.Loss}, {Name: "validation", X: h.Evals, Y: h.Metrics["eval_loss"]},
		}},
	}}
	if len(h.Evals) > 1 {
		var curves []report.Series
		for _, name := range []string{"f1", "precision", "recall"} {
			curves = append(curves, report.Series{Name: name, X: h.Evals, Y: h.Metrics[name]})
		}
		figs = append(figs, report.Figure{Caption: "Validation metrics at a threshold of 0.5", Drawing: report.Chart{X: "update", Y: "share", YRange: unit, Series: curves}})
	}
	return report.Section{Title: "Training", Figures: figs}
}

func dataSection(o *Outcome) report.Section {
	t := report.Table{Caption: "Texts", Header: []string{"", "texts", "flagged", "mean tokens", "99th percentile", "cut"}}
	for _, name := range []string{"train", "validation", "test"} {
		if s, ok := o.Splits[name]; ok {
			t.Rows = append(t.Rows, []string{name, fmt.Sprint(s.Texts), fmt.Sprintf("%d (%.1f %%)", s.Flagged, 100*float64(s.Flagged)/float64(s.Texts)),
				fmt.Sprintf("%.1f", s.MeanTokens), fmt.Sprint(s.P99Tokens), fmt.Sprint(s.Cut)})
		}
	}
	dup := report.Table{Caption: "Duplicates (ignoring case and repeated spaces)", Header: []string{"", "texts"}}
	d := o.Duplicates
	for _, name := range []string{"train", "validation", "test"} {
		dup.Rows = append(dup.Rows, []string{"within " + name, fmt.Sprint(d.Within[name])})
	}
	for _, name := range []string{"train in validation", "train in test", "validation in test"} {
		dup.Rows = append(dup.Rows, []string{name, fmt.Sprint(d.Across[name])})
	}
	dup.Rows = append(dup.Rows, []string{"with both labels", fmt.Sprint(d.Conflicts)}, []string{"dropped from training", fmt.Sprint(d.Dropped)})
	p := o.Padding
	return report.Section{
		Title: "Data",
		Text: fmt.Sprintf("Class weights in the loss: %.3f and %.3f. Padding is %.0f %% of the tokens in buckets %s, %.0f %% at a fixed length of %d; lengths %s would give %.0f %%.",
			o.Classes.Negative, o.Classes.Positive, 100*p.Share, list(p.Buckets), 100*p.Fixed, p.Buckets[len(p.Buckets)-1], list(p.BestBuckets), 100*p.Best),
		Tables: []report.Table{t, dup},
	}
}

func list(xs []int) string { return strings.Trim(fmt.Sprint(xs), "[]") }

func f3(v float64) string { return fmt.Sprintf("%.3f", v) }

func interval(v float64, i metric.Interval) string {
	return fmt.Sprintf("%.3f (%.3f–%.3f)", v, i.Low, i.High)
}
