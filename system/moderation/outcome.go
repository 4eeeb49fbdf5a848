package moderation

import (
	"context"
	"errors"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/metric"
	"github.com/snug-ml/snug/train/rundir"
)

// OutcomeFile is the name of an [Outcome] in a run directory.
const OutcomeFile = "report.json"

// Outcome is the content of report.json: the result of a run.
type Outcome struct {
	Update       int64             `json:"update"`
	Parameters   int64             `json:"parameters"`
	Splits       map[string]Split  `json:"splits"`
	Duplicates   duplicates        `json:"duplicates"`
	Padding      Padding           `json:"padding"`
	Classes      ClassWeights      `json:"class_weights"`
	DecisionRule DecisionRule      `json:"decision"`
	Model        map[string]Result `json:"model"`              // by split
	Baseline     map[string]Result `json:"baseline,omitempty"` // by split
}

// Split counts the texts of a split.
type Split struct {
	Texts      int     `json:"texts"`
	Flagged    int     `json:"flagged"`
	MeanTokens float64 `json:"mean_tokens"`
	P99Tokens  int     `json:"p99_tokens"`
	Cut        int     `json:"cut"`
}

// Padding describes the padding of the training texts in their micro-batches.
type Padding struct {
	Buckets []int   `json:"buckets"`
	Share   float64 `json:"share"`
	// Fixed is the share of padding if every text is padded to the longest bucket. Best is the share with
	// BestBuckets, the same number of lengths chosen to pad these texts least.
	Fixed       float64 `json:"fixed_share"`
	Best        float64 `json:"best_share"`
	BestBuckets []int   `json:"best_buckets"`
}

// ClassWeights are the weights of the classes in the loss.
type ClassWeights struct {
	Negative float64 `json:"negative"`
	Positive float64 `json:"positive"`
}

// Result holds a model's results on the texts of a split.
type Result struct {
	ROCAUC  float64 `json:"roc_auc"`
	PRAUC   float64 `json:"pr_auc"` // average precision
	LogLoss float64 `json:"log_loss"`
	Brier   float64 `json:"brier"`
	ECE     float64 `json:"calibration_error"`
	// RawECE is the calibration error without the temperature.
	RawECE      float64 `json:"calibration_error_uncalibrated"`
	AtHalf      Figures `json:"at_a_half"` // without the temperature
	AtThreshold Figures `json:"at_threshold"`
}

// Figures holds the metrics at one threshold, with 95 % intervals.
type Figures struct {
	metric.Operating
	Accuracy     float64         `json:"accuracy"`
	Precision    float64         `json:"precision"`
	Recall       float64         `json:"recall"`
	F1           float64         `json:"f1"`
	PrecisionCI  metric.Interval `json:"precision_interval"`
	RecallCI     metric.Interval `json:"recall_interval"`
	F1CI         metric.Interval `json:"f1_interval"`
	FalsePosRate float64         `json:"false_positive_rate"`
}

// reliabilityBins is the number of bins of the calibration error and its curve.
const reliabilityBins = 10

// bootstrapRounds is the number of samples drawn for an interval.
const bootstrapRounds = 1000

func figures(probs []float64, positive []bool, threshold float64) Figures {
	c := metric.Count(probs, positive, threshold)
	return Figures{
		Operating: metric.Operating{Threshold: threshold, Confusion: c},
		Accuracy:  c.Accuracy(), Precision: c.Precision(), Recall: c.Recall(), F1: c.F1(), FalsePosRate: c.FalsePositiveRate(),
		PrecisionCI: metric.Wilson(c.TP, c.TP+c.FP), RecallCI: metric.Wilson(c.TP, c.TP+c.FN),
		F1CI: metric.Bootstrap(len(probs), bootstrapRounds, 1, 0.95, func(index []int) float64 {
			var d metric.Confusion
			for _, i := range index {
				switch flagged := probs[i] >= threshold; {
				case flagged && positive[i]:
					d.TP++
				case flagged:
					d.FP++
				case positive[i]:
					d.FN++
				}
			}
			return d.F1()
		}),
	}
}

func result(s *predictions, v DecisionRule) (Result, error) {
	raw, probs := s.probabilities(1), s.probabilities(v.Temperature)
	r, err := metric.Rank(s.Margins, s.Positive)
	if err != nil {
		return Result{}, err
	}
	scaled := make([]float64, len(s.Margins))
	for i, m := range s.Margins {
		scaled[i] = m / v.Temperature
	}
	return Result{
		ROCAUC: r.ROCAUC(), PRAUC: r.AveragePrecision(),
		LogLoss: metric.LogLoss(scaled, s.Positive), Brier: metric.Brier(probs, s.Positive),
		ECE:    metric.ECE(metric.Reliability(probs, s.Positive, reliabilityBins)),
		RawECE: metric.ECE(metric.Reliability(raw, s.Positive, reliabilityBins)),
		AtHalf: figures(raw, s.Positive, 0.5), AtThreshold: figures(probs, s.Positive, v.Threshold),
	}, nil
}

// half is the decision rule to measure a baseline with: its uncalibrated logits and a threshold of one half.
var half = DecisionRule{Temperature: 1, Threshold: 0.5}

// report scores the texts with the weights in r and writes decision.json, report.json and report.html to dir.
func (t *task) report(ctx context.Context, r *engine.Executable, update int64, dir *rundir.Dir) error {
	valid, err := score(ctx, r, t.valid)
	if err != nil {
		return err
	}
	v, err := decide(t.config, update, valid)
	if err != nil {
		return err
	}
	o := &Outcome{
		Update: update, DecisionRule: v, Splits: map[string]Split{}, Duplicates: t.texts.duplicates, Padding: t.paddings(),
		Classes: ClassWeights{t.weights[0], t.weights[1]}, Model: map[string]Result{}, Baseline: map[string]Result{},
	}
	o.Parameters, _ = r.Program().Parameters()
	scores := map[string]*predictions{"validation": valid}
	for _, s := range []struct {
		name string
		x    *examples
	}{{"train", t.train}, {"validation", t.valid}, {"test", t.test}} {
		if s.x == nil {
			continue
		}
		n := len(s.x.samples)
		o.Splits[s.name] = Split{n, count(s.x.samples), float64(s.x.lengths.Sum()) / float64(n), s.x.lengths.Quantile(0.99), s.x.cut}
		if s.name == "train" {
			continue
		}
		if scores[s.name] == nil {
			if scores[s.name], err = score(ctx, r, s.x); err != nil {
				return err
			}
		}
		if o.Model[s.name], err = result(scores[s.name], v); err != nil {
			return err
		}
		if t.baseline != nil {
			if o.Baseline[s.name], err = result(t.baseline.score(s.x.samples), half); err != nil {
				return err
			}
		}
	}
	history, err := train.ReadHistory(t.env.Dir.Path(), "eval_loss", "f1", "precision", "recall")
	if err != nil {
		return err
	}
	p := page(t.config, o, scores, history)
	err = errors.Join(v.save(dir), dir.ReplaceJSON(OutcomeFile, o), p.Save(dir))
	if err == nil {
		t.env.Log("%s", lead(o))
		t.env.Log("report: %s", dir.Join(report.FileName))
	}
	return err
}

func (t *task) paddings() Padding {
	b, l := buckets(t.config), t.train.lengths
	best := l.Buckets(len(b), 8, t.encoder.longest)
	return Padding{Buckets: b, Share: t.train.padding(), Fixed: l.PaddingShare(b[len(b)-1:]), Best: l.PaddingShare(best), BestBuckets: best}
}

// reported returns the split that a run is judged by, and whether the threshold was chosen on the same texts.
func (o *Outcome) reported() (name string, same bool) {
	if _, ok := o.Model["test"]; ok {
		return "test", false
	}
	return "validation", true
}

// names returns the names of the classes.
func names(c *config.Config) (negative, positive string) {
	d := config.Of[Data](c)
	return d.Other, d.Name
}
