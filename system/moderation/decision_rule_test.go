package moderation

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/system/report"
	"github.com/snug-ml/snug/train/metric"
	"github.com/snug-ml/snug/train/rundir"
)

// draw makes scores that are higher for positives.
func draw(n int) *predictions {
	rng := rand.New(rand.NewPCG(2, 3))
	s := &predictions{}
	for i := range n {
		positive := rng.IntN(5) == 0
		m := 2*rng.NormFloat64() - 2
		if positive {
			m += 4
		}
		s.Margins, s.Positive, s.Index = append(s.Margins, m), append(s.Positive, positive), append(s.Index, i)
	}
	return s
}

// TestDecide: the threshold is the one of highest recall that reaches the required precision, and it is
// reported if there is none.
func TestDecide(t *testing.T) {
	s := draw(800)
	for _, target := range []string{"0.8", "0.95", "0"} {
		v, err := decide(settings(t, "data.source", "x", "decision.precision", target), 7, s)
		if err != nil {
			t.Fatal(err)
		}
		probs := s.probabilities(v.Temperature)
		c := metric.Count(probs, s.Positive, v.Threshold)
		best, recall := 0.0, 0.0
		for _, p := range probs {
			d := metric.Count(probs, s.Positive, p)
			best = max(best, d.F1())
			if d.Precision() >= v.Precision {
				recall = max(recall, d.Recall())
			}
		}
		switch {
		case v.Update != 7 || v.Reached != (v.Precision > 0):
			t.Errorf("decision rule %+v", v)
		case v.Precision > 0 && (c.Precision() < v.Precision || c.Recall() != recall):
			t.Errorf("for precision %s: precision %v, recall %v; the best recall is %v", target, c.Precision(), c.Recall(), recall)
		case v.Precision == 0 && c.F1() != best:
			t.Errorf("for the best F1: %v, there is %v", c.F1(), best)
		}
		// The last bit of a probability does not change a decision.
		for i := range probs {
			probs[i] *= 1 + 1e-12
		}
		if metric.Count(probs, s.Positive, v.Threshold) != c {
			t.Error("the threshold lies on a probability")
		}
	}
	never := &predictions{Margins: []float64{3, 2, 1}, Positive: []bool{false, true, true}}
	v, err := decide(settings(t, "data.source", "x", "decision.precision", "0.99"), 1, never)
	if err != nil || v.Reached {
		t.Errorf("decision rule %+v, %v", v, err)
	}
}

func TestReadDecisionRule(t *testing.T) {
	dir := t.TempDir()
	if _, ok, err := ReadDecisionRule(dir); ok || err != nil {
		t.Errorf("no decision rule is read as %v, %v", ok, err)
	}
	v := undecided(settings(t, "data.source", "x"))
	run, err := rundir.Look(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(v.save(run), run.Close()); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := ReadDecisionRule(dir); got != v || !ok || err != nil {
		t.Errorf("read %+v, %v, %v", got, ok, err)
	}
	for _, text := range []string{"{", `{"temperature": 0, "threshold": 0.5}`, `{"temperature": 1, "threshold": 2}`} {
		if err := os.WriteFile(filepath.Join(dir, DecisionFile), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadDecisionRule(dir); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

// TestReport: a run learns, beats flagging everything, and writes a decision rule, a report as data and one
// as a page, all for the same weights.
func TestReport(t *testing.T) {
	p := prepareRun(t, small("data.source", comments(t, "train.csv", 600, 1), "data.validation", comments(t, "valid.csv", 200, 2), "data.test", comments(t, "test.csv", 200, 3))...)
	p.trained(t, 60)
	var o Outcome
	raw, err := os.ReadFile(filepath.Join(p.dir, OutcomeFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	v, ok, err := ReadDecisionRule(p.dir)
	if err != nil || !ok || v != o.DecisionRule || o.Update != 60 {
		t.Errorf("decision rule %+v, %v, %v; the report has %+v", v, ok, err, o.DecisionRule)
	}
	if f1, all := o.Model["test"].AtHalf.F1, p.run.Baselines[0].Value; f1 < all+0.2 {
		t.Errorf("F1 %v on the test texts, flagging everything has %v", f1, all)
	}
	if r := o.Model["validation"]; r.AtThreshold.Precision < v.Precision {
		t.Errorf("the threshold has precision %v on the validation texts, %v was asked for", r.AtThreshold.Precision, v.Precision)
	}
	if o.Splits["train"].Texts == 0 || o.Baseline["test"].ROCAUC == 0 || o.Padding.Share <= 0 || o.Padding.Share >= o.Padding.Fixed || o.Padding.Best > o.Padding.Share {
		t.Errorf("report %+v", o)
	}
	page, err := os.ReadFile(filepath.Join(p.dir, report.FileName))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"The test texts", "The validation texts", "Receiver operating characteristic", "Precision over recall", "Every threshold", "Reliability", "Confusion", "bag of words"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("report.html lacks %q", want)
		}
	}
}
