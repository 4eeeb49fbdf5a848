package corpus

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train"
)

// These are the outputs of an examination: an F32 [N] value for each label.
const (
	outputNLL   = "label_nll"   // negative log-likelihood of the label
	outputTop   = "label_top"   // probability of the most likely token
	outputRight = "label_right" // 1 if that token is the label
)

// mostPieces limits the number of pieces in which rows are scored, because each has code of its own, which
// takes time to compile.
const mostPieces = 256

// LabelScores returns the logit [N] of each label and the maximum of its row. Like the loss, it computes the
// logits of only rows rows at a time. hidden is [N, D], and w is [V, D].
func LabelScores(b *graph.Builder, hidden, w, labels *graph.Value, rows int) (truth, best *graph.Value) {
	n := labels.Shape()[0]
	rows = max(rows, (n+mostPieces-1)/mostPieces)
	var scores, most []*graph.Value
	for at := 0; at < n; at += rows {
		k := min(rows, n-at)
		logits := b.Emit(graph.MatMul{TransB: true, Out: graph.F32}, b.Slice(hidden, 0, at, k), w)[0]
		scores = append(scores, b.Reshape(b.Gather(logits, b.Reshape(b.Slice(labels, 0, at, k), k, 1)), k))
		most = append(most, b.MaxAlong(logits, -1))
	}
	truth = b.Detach(b.Concat(0, scores...))
	return truth, b.Detach(b.Concat(0, most...))
}

// Examine adds the outputs for each label. lse [N] is the log-sum-exp of the logits.
func Examine(b *graph.Builder, hidden, w, labels, lse *graph.Value, rows int) []graph.Output {
	truth, best := LabelScores(b, hidden, w, labels, rows)
	return []graph.Output{
		{Name: outputNLL, Value: b.Sub(lse, truth)},
		{Name: outputTop, Value: b.Apply(graph.FnExp, b.Sub(best, lse))},
		{Name: outputRight, Value: b.Apply(graph.FnEqual, truth, best)},
	}
}

// These are the sizes of the results of an examination.
const (
	calibrationBins = 15
	positionGroups  = 64
	extremes        = 3 // number of windows to keep that were predicted best, and worst
)

// Examined is a program's output for held-out labels.
type Examined struct {
	Windows    int64
	Losses     []Loss               // one for each micro-batch
	bins       [calibrationBins]bin // by the probability of the most likely token
	positions  []mean               // losses, by groups of positions in the window
	group      int                  // positions per group
	best, last []window             // the easiest windows, and the hardest
}

type bin struct {
	n, probability, right float64
}

type mean struct{ n, sum float64 }

type window struct {
	loss   float64
	labels []int32
}

// ExamineWindows runs an examination over the held-out windows of an evaluation, at most batches
// micro-batches of rows (0: all). Its memory does not grow with the text, except for one sum per micro-batch.
func ExamineWindows(ctx context.Context, x *engine.Executable, held *data.Windows, rows, batches int, segments bool) (*Examined, error) {
	length := held.Length()
	e := &Examined{group: (length + positionGroups - 1) / positionGroups}
	e.positions = make([]mean, (length+e.group-1)/e.group)
	pass := train.Evaluation[struct{}]{
		Batches: Pass(held, data.LoaderOptions{BatchSize: rows, Segments: segments}, batches, func(_ int, u *data.Update) train.EvalBatch[struct{}] {
			b := &u.Micro[0]
			return train.EvalBatch[struct{}]{
				Fill: func(in train.Inputs) error { return Fill(b, in) },
				Read: func(out train.Outputs) (struct{}, error) { return struct{}{}, e.read(b, length, out) },
			}
		}),
	}
	if _, err := pass.Records(ctx, x, 0, train.Part{}); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Examined) read(b *data.Batch, length int, out train.Outputs) error {
	sum, err := out.Sum()
	if err != nil {
		return err
	}
	nll, err := out.F32(outputNLL)
	if err != nil {
		return err
	}
	top, err := out.F32(outputTop)
	if err != nil {
		return err
	}
	right, err := out.F32(outputRight)
	if err != nil {
		return err
	}
	loss := Loss{Sum: sum}
	for row := 0; row*length < len(b.Labels); row++ {
		var of mean
		for t := range length {
			i := row*length + t
			w := float64(b.Weights[i])
			if w == 0 {
				continue
			}
			of.n, of.sum = of.n+w, of.sum+w*float64(nll[i])
			p := &e.positions[t/e.group]
			p.n, p.sum = p.n+w, p.sum+w*float64(nll[i])
			c := &e.bins[max(0, min(calibrationBins-1, int(top[i]*calibrationBins)))]
			c.n, c.probability, c.right = c.n+1, c.probability+float64(top[i]), c.right+float64(right[i])
		}
		if loss.Weight += of.n; of.n > 0 {
			e.Windows++
			e.keep(window{of.sum / of.n, b.Labels[row*length : (row+1)*length]})
		}
	}
	e.Losses = append(e.Losses, loss)
	return nil
}

// ByLabel returns the mean loss of all labels, summed label by label.
func (e *Examined) ByLabel() float64 {
	var n, sum float64
	for _, p := range e.positions {
		n, sum = n+p.n, sum+p.sum
	}
	return sum / n
}

// keep keeps a window if it is among the easiest or the hardest so far.
func (e *Examined) keep(w window) {
	insert := func(list []window, before func(a, b window) int) []window {
		at, _ := slices.BinarySearchFunc(list, w, before)
		if at >= extremes {
			return list
		}
		own := window{w.loss, slices.Clone(w.labels)} // because the batch is reused
		list = slices.Insert(list, at, own)
		return list[:min(extremes, len(list))]
	}
	e.best = insert(e.best, func(a, b window) int { return cmp.Compare(a.loss, b.loss) })
	e.last = insert(e.last, func(a, b window) int { return cmp.Compare(b.loss, a.loss) })
}

// CalibrationError returns the mean distance between the probability of the most likely token and how often
// that token is right, over bins of the probability (Guo et al. 2017).
func (e *Examined) CalibrationError() float64 {
	var n, sum float64
	for _, b := range e.bins {
		n, sum = n+b.n, sum+max(b.probability-b.right, b.right-b.probability)
	}
	return sum / n
}

// Accuracy returns the share of labels that were the most likely token.
func (e *Examined) Accuracy() float64 {
	var n, right float64
	for _, b := range e.bins {
		n, right = n+b.n, right+b.right
	}
	return right / n
}

// sampleText limits the text of a window in a report, in bytes.
const sampleText = 600

// Sections returns the sections of a report. spell returns the text of tokens; nil means no samples.
func (e *Examined) Sections(spell func(ids []int32) string) []report.Section {
	told := report.Series{Name: "model", Style: report.Points}
	table := report.Table{Caption: "Next tokens by the probability of the likeliest one.", Header: []string{"probability", "labels", "mean probability", "share right"}}
	for i, b := range e.bins {
		if b.n == 0 {
			continue
		}
		told.X, told.Y = append(told.X, b.probability/b.n), append(told.Y, b.right/b.n)
		table.Rows = append(table.Rows, []string{
			fmt.Sprintf("%.2f to %.2f", float64(i)/calibrationBins, float64(i+1)/calibrationBins), fmt.Sprintf("%.0f", b.n),
			fmt.Sprintf("%.3f", b.probability/b.n), fmt.Sprintf("%.3f", b.right/b.n),
		})
	}
	unit := [2]float64{0, 1}
	out := []report.Section{{
		Title: "Calibration of next tokens",
		Text: fmt.Sprintf("The likeliest token was right for %.1f %% of the labels. Its probability differs from how often it is right by %.3f in the mean (expected calibration error, %d bins).",
			100*e.Accuracy(), e.CalibrationError(), calibrationBins),
		Tables: []report.Table{table},
		Figures: []report.Figure{{
			Caption: "Probability of the likeliest token, and how often it was right.",
			Drawing: report.Chart{X: "probability", Y: "share right", XRange: unit, YRange: unit,
				Series: []report.Series{told, {Name: "exact", X: unit[:], Y: unit[:], Style: report.Dashed}}},
		}},
	}}
	place := report.Series{}
	for g, m := range e.positions {
		if m.n > 0 {
			place.X, place.Y = append(place.X, float64(g*e.group)+float64(e.group-1)/2), append(place.Y, m.sum/m.n)
		}
	}
	out = append(out, report.Section{
		Title: "Loss by position", Text: fmt.Sprintf("Of %s, %.3g in the mean. It falls where the context before a token is of use.", size.Of(e.Windows, "window"), e.ByLabel()),
		Figures: []report.Figure{{
			Caption: "Mean loss by place in the window.",
			Drawing: report.Chart{X: "place in the window", Y: "loss", Series: []report.Series{place}},
		}},
	})
	if spell == nil {
		return out
	}
	samples := report.Table{Text: true, Header: []string{"loss", "text"}}
	for _, list := range [][]window{e.best, e.last} {
		for _, w := range list {
			text := spell(w.labels)
			if len(text) > sampleText {
				text = strings.ToValidUTF8(text[:sampleText], "") + "…"
			}
			samples.Rows = append(samples.Rows, []string{fmt.Sprintf("%.3f", w.loss), text})
		}
	}
	return append(out, report.Section{Title: "Held-out windows predicted best and worst", Tables: []report.Table{samples}})
}
