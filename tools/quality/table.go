package main

// quickstarts are the presets by system.
var quickstarts = []struct{ system, preset string }{
	{"refocused", "quickstart"},
	{"moderation", "moderation-quickstart"},
	{"agiformer", "agiformer-quickstart"},
	{"cloudbase", "cloudbase-quickstart"},
	{"dynamo", "dynamo-quickstart"},
}

// A promise is what is stated of a quickstart: a figure of its run directory
// that must reach a bound and beat a baseline, whatever the seed, the
// precision and the processor.
type promise struct {
	system string
	// name is what the figure is called in reports.
	name string
	// file of the run directory, and the keys that lead to the figure in it.
	file, path string
	// bound that the figure reaches: from above where lower is better.
	bound float64
	lower bool
	// baseline leads to the figure of the same file that must be beaten; empty:
	// there is none.
	baseline string
}

// promises are the stated quality of the quickstarts.
var promises = []promise{
	// Which packages are held out goes by the seed, and they differ by a tenth of a nat,
	// as their bigrams do.
	{"refocused", "loss, nats a token", "summary.json", "eval_loss", 3.75, true, "baseline_bigram_loss"},

	{"moderation", "F1 at a half, test", "report.json", "model.test.at_a_half.f1", 0.80, false, "baseline.test.at_a_half.f1"},
	{"moderation", "log loss, test", "report.json", "model.test.log_loss", 0.2, true, "baseline.test.log_loss"},
	// The bag of words ranks as well with some splits.
	{"moderation", "ROC AUC, test", "report.json", "model.test.roc_auc", 0.95, false, ""},

	{"agiformer", "loss, nats a byte", "summary.json", "eval_loss", 1.6, true, "baseline_bigram_loss"},
	{"agiformer", "accuracy of a byte", "summary.json", "metrics.accuracy", 0.57, false, ""},

	{"cloudbase", "R2, test", "report.json", "sides.test.r2", 0.93, false, ""},
	{"cloudbase", "RMSE in km, test", "report.json", "sides.test.rmse", 0.13, true, "sides.test.baseline_rmse"},

	{"dynamo", "phase 0: loss, nats", "phase0-encoder/summary.json", "metrics.eval_loss", 5.0, true, "baseline_unigram_loss"},
	{"dynamo", "sentiment: accuracy", "phase1-sentiment/result.json", "metrics.score", 0.75, false, "metrics.baseline_score"},
	{"dynamo", "qa: token F1", "phase1-qa/result.json", "metrics.score", 0.65, false, "metrics.baseline_score"},
	{"dynamo", "summarization: ROUGE-L", "phase1-summarization/result.json", "metrics.score", 0.05, false, "metrics.baseline_score"},
	{"dynamo", "code_generation: ROUGE-L", "phase1-code_generation/result.json", "metrics.score", 0.24, false, "metrics.baseline_score"},
	{"dynamo", "translation: ROUGE-L", "phase1-translation/result.json", "metrics.score", 0.65, false, "metrics.baseline_score"},
	{"dynamo", "router: accuracy", "phase2-router/result.json", "metrics.routing_accuracy", 0.9, false, ""},
	{"dynamo", "mean score, routed", "phase2-router/result.json", "systems.router, hard.mean", 0.45, false, "systems.uniform.mean"},
	{"dynamo", "mean score, routed, after phase 3", "phase3-joint/result.json", "systems.router, hard.mean", 0.45, false, "systems.uniform.mean"},
}

// systems are those of the table, in its order.
func systems() (names []string) {
	for _, q := range quickstarts {
		names = append(names, q.system)
	}
	return names
}

// presetOf is the quickstart of a system.
func presetOf(system string) string {
	for _, q := range quickstarts {
		if q.system == system {
			return q.preset
		}
	}
	return ""
}
