package agiformer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train/metric"
)

// page returns the content of report.html: how good the model is, where its tokens go, and how well it knows
// itself.
func (f *totals) page(update int64, b data.Baseline) *report.Page {
	m := f.metrics()
	bits := func(loss float64) string { return number(loss / math.Ln2 * f.perByte) }
	p := &report.Page{
		Title: fmt.Sprintf("agiformer, update %d", update),
		Lead:  fmt.Sprintf("%s bits per byte on held-out text; counting bytes gives %s, counting pairs of bytes %s.", number(m["bits_per_byte"]), bits(b.Unigram), bits(b.Bigram)),
	}
	text := report.Table{Header: []string{"", "loss", "perplexity", "bits per byte"}}
	for _, row := range []struct {
		name string
		loss float64
	}{{"the model", m["eval_loss"]}, {"pairs of bytes", b.Bigram}, {"bytes", b.Unigram}} {
		text.Rows = append(text.Rows, []string{row.name, number(row.loss), number(math.Exp(row.loss)), bits(row.loss)})
	}
	p.Sections = append(p.Sections, report.Section{Title: "Text", Tables: []report.Table{text}})
	if f.hasExperts {
		p.Sections = append(p.Sections, f.experts())
	}
	if f.memory {
		gates := report.Table{Header: []string{"gate", "mean"}}
		for _, g := range []struct{ name, key string }{
			{"working memory", "gate_working"}, {"bank", "gate_bank"}, {"written vectors", "gate_written"}, {"strength of the writes", "gate_write"},
		} {
			gates.Rows = append(gates.Rows, []string{g.name, number(m[g.key])})
		}
		p.Sections = append(p.Sections, report.Section{Title: "Memory", Tables: []report.Table{gates}})
	}
	if f.hasHeads {
		p.Sections = append(p.Sections, f.introspection(m))
	}
	return p
}

func number(v float64) string { return fmt.Sprintf("%.4g", v) }

// experts shows where the tokens went, by layer and expert.
func (f *totals) experts() report.Section {
	kinds := f.net.Experts.Kinds
	t := report.Table{
		Caption: "Tokens that each expert took, and how many were dropped.",
		Header:  []string{"expert", "layer", "tokens", "share", "dropped"},
	}
	entropy := report.Series{Name: "mean", Style: report.Points}
	for l, h := range f.Entropy {
		total := 0.0
		for e := range kinds {
			total += f.Wanted[l*len(kinds)+e]
		}
		for e, k := range kinds {
			n := f.Taken[l*len(kinds)+e]
			t.Rows = append(t.Rows, []string{
				fmt.Sprintf("%d %s", e, k), fmt.Sprint(l), fmt.Sprintf("%.0f", n), fmt.Sprintf("%.1f %%", 100*n/total),
				fmt.Sprintf("%.0f", f.Wanted[l*len(kinds)+e]-n),
			})
		}
		entropy.X, entropy.Y = append(entropy.X, float64(l)), append(entropy.Y, h/f.Weight)
	}
	return report.Section{Title: "Experts", Tables: []report.Table{t}, Figures: []report.Figure{{
		Caption: fmt.Sprintf("Entropy of the routers in nats; %.2f means no preference.", math.Log(float64(len(kinds)))),
		Drawing: report.Chart{X: "layer", Y: "entropy", Series: []report.Series{entropy}, YRange: [2]float64{0, math.Log(float64(len(kinds)))}},
	}}}
}

// introspection compares the output of the heads with the truth.
func (f *totals) introspection(m map[string]float64) report.Section {
	t := report.Table{Header: []string{"", "value"}}
	for _, r := range []struct{ name, key string }{
		{"bytes predicted correctly", "accuracy"}, {"mean confidence", "confidence"},
		{"calibration error of the confidence", "confidence_ece"}, {"Brier score of the confidence", "confidence_brier"},
		{"correlation of confidence and correctness", "confidence_correlation"},
		{"mean loss", "eval_loss"}, {"mean estimate of the loss", "error_estimate"}, {"correlation of estimate and loss", "error_correlation"},
	} {
		t.Rows = append(t.Rows, []string{r.name, number(m[r.key])})
	}
	said := report.Series{Name: "confidence", Style: report.Points}
	for _, b := range metric.Reliability(f.Confidence, f.Right, bins) {
		if b.Count > 0 {
			said.X, said.Y = append(said.X, b.Predicted), append(said.Y, b.Observed)
		}
	}
	told := report.Series{Name: "estimate", Style: report.Points}
	told.X, told.Y = byEstimate(f.Errors, f.Losses)
	top := 0.0
	for i := range told.X {
		top = max(top, told.X[i], told.Y[i])
	}
	diagonal := func(end float64) report.Series {
		return report.Series{Name: "exact", Style: report.Dashed, X: []float64{0, end}, Y: []float64{0, end}}
	}
	return report.Section{Title: "Introspection", Tables: []report.Table{t}, Figures: []report.Figure{
		{
			Caption: "Confidence and how often the most likely byte was correct.",
			Drawing: report.Chart{X: "confidence", Y: "share correct", Series: []report.Series{said, diagonal(1)}, XRange: [2]float64{0, 1}, YRange: [2]float64{0, 1}},
		},
		{
			Caption: "Estimated loss against the true one, in ten groups of equal size by the estimate.",
			Drawing: report.Chart{X: "estimate", Y: "loss", Series: []report.Series{told, diagonal(top)}},
		},
	}}
}

// byEstimate returns the mean estimate and the mean loss in groups of equal size, ordered by the estimate.
func byEstimate(estimates, losses []float64) (x, y []float64) {
	index := make([]int, len(estimates))
	for i := range index {
		index[i] = i
	}
	slices.SortFunc(index, func(a, b int) int { return cmp.Compare(estimates[a], estimates[b]) })
	for group := range bins {
		lo, hi := group*len(index)/bins, (group+1)*len(index)/bins
		if lo == hi {
			continue
		}
		var e, l float64
		for _, i := range index[lo:hi] {
			e, l = e+estimates[i], l+losses[i]
		}
		x, y = append(x, e/float64(hi-lo)), append(y, l/float64(hi-lo))
	}
	return x, y
}

// spell returns a function that returns the text of byte tokens; nil if tokens are not bytes.
func (m Net) spell() func(ids []int32) string {
	if m.Vocab != byteVocabulary {
		return nil
	}
	return func(ids []int32) string {
		text := make([]byte, 0, len(ids))
		for _, id := range ids {
			if id < 256 {
				text = append(text, byte(id))
			}
		}
		return strings.ToValidUTF8(string(text), "\uFFFD")
	}
}
