package session

import (
	"fmt"
	"strconv"

	"github.com/snug-ml/snug/train"
)

// learning configures the checks for whether the run learns.
func (r *run) learning() train.Learning {
	t := &r.Config.Training
	l := train.Learning{Drifts: r.data.Drifts, From: int64(max(2*t.WarmupSteps, t.MaxSteps/5))}
	if b := r.data.Baselines; len(b) > 0 && r.data.Evaluator != nil {
		l.Floor = &train.Floor{Name: b[0].Name, Value: b[0].Value}
	}
	return l
}

// advise lists the settings that help with a kind of warning, with their current values.
func (r *run) advise(kind train.WarningKind) (helps []string) {
	values := map[string]string{}
	for _, v := range r.Config.Values() {
		values[v.Key] = v.Text
	}
	add := func(change, key string) {
		if now, ok := values[key]; ok {
			helps = append(helps, fmt.Sprintf("%s %s (now %s)", change, key, now))
		}
	}
	rate, steps := or(r.data.RateKey, "training.learning_rate"), or(r.data.StepsKey, "training.max_steps")
	warmup := or(r.data.WarmupKey, "training.warmup_steps")
	switch kind {
	case train.Memorized:
		helps = append(helps, "more data")
		add("a higher", "model.dropout")
		add("a higher", "training.weight_decay")
		add("fewer", steps)
		return helps
	case train.Unmoved:
		add("a higher", rate)
		add("a shorter", warmup)
		add("more", steps)
		return helps
	}
	add("a lower", rate)
	add("a longer", warmup)
	if r.Config.Training.MaxGradNorm == 0 {
		add("1 for", "training.max_grad_norm")
	}
	if r.Config.Training.Eps < 1e-12 {
		add("a larger", "training.eps")
	}
	if s, err := strconv.ParseFloat(values["model.init_std"], 64); err == nil && s > 0.02 {
		add("a smaller", "model.init_std")
	}
	if kind == train.Unlearned {
		add("more", steps)
	}
	if r.Precision != "fp32" {
		helps = append(helps, fmt.Sprintf("training.mixed_precision fp32 (now %s)", r.Precision))
	}
	return helps
}

// or returns a, or b if a is empty.
func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}
