package moderation

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
	"github.com/snug-ml/snug/train/metric"
	"github.com/snug-ml/snug/train/rundir"
)

// DecisionFile is the name of a [DecisionRule] in a run directory.
const DecisionFile = "decision.json"

// DecisionRule says how to turn a model's logits into a decision. It is chosen on the validation texts.
type DecisionRule struct {
	// Update is the update of the weights that the rule was chosen for.
	Update int64 `json:"update"`
	// Temperature divides the difference of the logits: p = sigmoid(margin / Temperature).
	Temperature float64 `json:"temperature"`
	// Threshold is the lowest probability that flags a text.
	Threshold float64 `json:"threshold"`
	// Precision is the target that the threshold had to reach on the validation texts, and Reached reports
	// whether any threshold did. Otherwise, and if Precision is 0, the threshold is the one with the best F1.
	Precision float64 `json:"precision_target"`
	Reached   bool    `json:"precision_target_reached"`
	// Positive and Negative are the names of the classes.
	Positive string `json:"positive_name"`
	Negative string `json:"negative_name"`
}

// undecided returns the decision rule if none was chosen: uncalibrated logits, with a threshold of one half.
func undecided(c *config.Config) DecisionRule {
	d := config.Of[Data](c)
	return DecisionRule{Temperature: 1, Threshold: 0.5, Positive: d.Name, Negative: d.Other}
}

// decide chooses the temperature and the threshold on validation texts.
func decide(c *config.Config, update int64, valid *predictions) (DecisionRule, error) {
	v := undecided(c)
	v.Update, v.Precision = update, config.Of[Decision](c).Precision
	v.Temperature = metric.Temperature(valid.Margins, valid.Positive)
	r, err := metric.Rank(valid.probabilities(v.Temperature), valid.Positive)
	if err != nil {
		return v, err
	}
	at, ok := r.BestF1()
	if v.Precision > 0 {
		if strict, reached := r.ForPrecision(v.Precision); reached {
			at, v.Reached = strict, true
		}
	}
	if !ok {
		return v, fmt.Errorf("no validation text was evaluated")
	}
	// Half-way to the next lower score, validation texts are classified alike, but rounding in the last bit
	// cannot change a decision.
	v.Threshold = at.Threshold
	for _, s := range r.Steps() {
		if s.Threshold < at.Threshold {
			v.Threshold = (at.Threshold + s.Threshold) / 2
			break
		}
	}
	return v, nil
}

// save writes the decision rule to a run directory.
func (v *DecisionRule) save(dir *rundir.Dir) error { return dir.ReplaceJSON(DecisionFile, v) }

// ReadDecisionRule returns the decision rule in a run directory; ok is false if there is none.
func ReadDecisionRule(dir string) (v DecisionRule, ok bool, err error) {
	path := filepath.Join(dir, DecisionFile)
	raw, err := regular.Read(path, regular.Text)
	if errors.Is(err, fs.ErrNotExist) {
		return v, false, nil
	}
	if err != nil {
		return v, false, err
	}
	if err := strictjson.Unmarshal(raw, &v); err != nil {
		return v, false, fmt.Errorf("%s: %w", path, err)
	}
	if !(v.Temperature > 0) || !(v.Threshold >= 0 && v.Threshold <= 1) {
		return v, false, fmt.Errorf("%s: temperature %v and threshold %v: want one above 0 and one from 0 to 1", path, v.Temperature, v.Threshold)
	}
	return v, true, nil
}
