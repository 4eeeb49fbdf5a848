package cli

import (
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/session"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

type evalCmd struct {
	pick
}

// Help implements kong.HelpProvider.
func (evalCmd) Help() string {
	return `Evaluates the best checkpoint of a run on the held-out data of that run. The
figures are those of training's own evaluation. Flags change settings: with
--data.source a checkpoint is evaluated on the held-out part of other data, with
its own tokenizer. Reports, thresholds and other data are written to
RUN/eval/step-N; the rest of the run stays as it is.

Examples:
  snug eval runs/quickstart
  snug eval runs/quickstart --data.source other.jsonl --data.format jsonl --data.split_by document
  snug eval runs/quickstart --checkpoint last
  snug eval runs/quickstart/checkpoints/step-00000400 --training.eval_batches 10`
}

// Run implements the command.
func (e *evalCmd) Run(a *app) error {
	o, err := a.openFor(e.pick, true)
	if err != nil {
		return err
	}
	s, err := session.Resolve(a.ctx, o.config)
	if err != nil {
		return err
	}
	if s.Chosen != "" {
		a.warnf("%s\n", s.Chosen)
	}
	for _, n := range s.Notes {
		a.warning("%s", n)
	}
	reports := a.evaluated(o.Path)
	found, unwritten := s.Evaluate(a.ctx, o.Chosen, reports)
	if found == nil {
		return unwritten
	}
	if !found.Reports {
		reports = ""
	}
	m := found.Metrics
	if a.asJSON {
		for _, b := range found.Baselines {
			m["baseline_"+b.Name] = b.Value
		}
		return errors.Join(a.json(struct {
			*checkpoint.Chosen
			Metrics map[string]checkpoint.Float `json:"metrics"`
			Reports string                      `json:"reports,omitempty"`
		}{o.Chosen, train.Floats(m), reports}), unwritten)
	}
	a.printf("%v, update %d\n", o, o.Update)
	for _, k := range sortedKeys(m) {
		a.printf("  %-18s %s\n", strings.ReplaceAll(k, "_", " "), figure(found.Monitor, k, m[k]))
	}
	for _, b := range found.Baselines {
		a.printf("  %-18s %.4f\n", "baseline "+b.Name, b.Value)
	}
	if reports != "" {
		a.printf("reports: %s\n", reports)
	}
	return unwritten
}

// evaluated returns the folder for the reports on a checkpoint. An evaluation with other settings than the
// run's has its own folder, so that nothing takes it for a result of the run.
func (a *app) evaluated(path string) string {
	dir := checkpoint.Evaluated(path)
	h := fnv.New32a()
	changed := false
	for _, o := range a.overrides {
		if section, _, _ := strings.Cut(o.Key, "."); section != "hardware" {
			changed = true
			_, _ = fmt.Fprintf(h, "%s=%s\n", o.Key, o.Text) // a hash never fails to write
		}
	}
	if changed {
		return filepath.Clean(fmt.Sprintf("%s-%08x", dir, h.Sum32()))
	}
	return dir
}

// figure formats a metric as evaluations print it: the monitored one in full precision.
func figure(g train.Metric, name string, v float64) string {
	if name == g.Name {
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
