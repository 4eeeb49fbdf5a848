package refocused

import (
	"context"
	"fmt"
	"math"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/corpus"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train/rundir"
)

// reporter returns a function that writes the report on the model of a loaded examination.
func reporter(c *config.Config, text *corpus.Corpus, rows int, log func(string, ...any)) func(ctx context.Context, r *engine.Executable, update int64, dir *rundir.Dir) error {
	return func(ctx context.Context, r *engine.Executable, update int64, dir *rundir.Dir) error {
		found, err := corpus.ExamineWindows(ctx, r, text.HeldOut, rows, c.Training.EvalBatches, c.Data.SegmentMask)
		if err != nil {
			return err
		}
		loss := corpus.Mean(found.Losses)
		p := &report.Page{
			Title: fmt.Sprintf("refocused, update %d", update),
			Lead: fmt.Sprintf("Loss %.4g on held-out text, perplexity %.4g; counting tokens gives %.4g, counting pairs of tokens %.4g.",
				loss, math.Exp(loss), text.Baseline.Unigram, text.Baseline.Bigram),
		}
		t := report.Table{Header: []string{"", "loss", "perplexity"}}
		for _, row := range append([]system.Baseline{{Name: "the model", Value: loss}}, baselines(text)...) {
			t.Rows = append(t.Rows, []string{row.Name, fmt.Sprintf("%.4g", row.Value), fmt.Sprintf("%.4g", math.Exp(row.Value))})
		}
		p.Sections = append([]report.Section{{Title: "Text", Tables: []report.Table{t}}}, found.Sections(func(ids []int32) string { return text.Tokenizer.Decode(ids, false) })...)
		if err := p.Save(dir); err != nil {
			return err
		}
		log("report: %s", dir.Join(report.FileName))
		return nil
	}
}

func baselines(text *corpus.Corpus) []system.Baseline {
	return []system.Baseline{{Name: "unigram", Value: text.Baseline.Unigram}, {Name: "bigram", Value: text.Baseline.Bigram}}
}
