package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// summaryFile is the name of a [Summary] in a run directory.
const summaryFile = "summary.json"

// Summary is summary.json: a run in figures.
type Summary struct {
	System string `json:"system"`
	Preset string `json:"preset,omitempty"`
	Done   bool   `json:"done"`

	Updates        int64                       `json:"updates"`
	UpdatesPlanned int64                       `json:"updates_planned"`
	Tokens         int64                       `json:"tokens"`
	TrainLoss      checkpoint.Float            `json:"train_loss"`
	EvalLoss       *checkpoint.Float           `json:"eval_loss,omitempty"`
	BestEvalLoss   *checkpoint.Float           `json:"best_eval_loss,omitempty"`
	BestUpdate     int64                       `json:"best_update,omitempty"`
	Unigram        *checkpoint.Float           `json:"baseline_unigram_loss,omitempty"`
	Bigram         *checkpoint.Float           `json:"baseline_bigram_loss,omitempty"`
	Metrics        map[string]checkpoint.Float `json:"metrics,omitempty"`
	StoppedEarly   bool                        `json:"stopped_early,omitempty"`
	// Trouble is what is wrong with what was learned.
	Trouble *train.Trouble `json:"trouble,omitempty"`
	Skipped int64          `json:"skipped_updates"`

	TokensPerSecond  float64 `json:"tokens_per_second"`
	FlopsUtilization float64 `json:"flops_utilization"`
	Peak             string  `json:"flops_utilization_of,omitempty"`
	FirstUpdate      float64 `json:"seconds_to_first_update"`
	Seconds          float64 `json:"seconds"`

	ArenaPlanned int64 `json:"arena_planned_bytes"`
	ArenaUsed    int64 `json:"arena_used_bytes"`
	PeakRSS      int64 `json:"peak_rss_bytes"`
	PlannedTotal int64 `json:"planned_total_bytes"`

	Precision  string   `json:"precision"`
	Device     string   `json:"device"`
	Threads    int      `json:"threads"`
	Parameters int64    `json:"parameters"`
	Untrained  []string `json:"parameters_without_gradient"`

	Checkpoint   string `json:"checkpoint,omitempty"`
	SaveRetries  int64  `json:"save_retries"`
	SaveFailures int64  `json:"save_failures"`
}

// dead reports whether the run has learned nothing that another could start from.
func (s *Summary) dead() bool { return s.Trouble != nil && s.Trouble.Kind != train.Lost }

func (r *run) summarise(res *train.Result, why error) error {
	all, _ := r.program.Parameters()
	st := r.store.Status()
	total := &r.view.total
	share := r.share(r.report, total.flops/max(total.seconds, 1e-9))
	r.keepPeak()
	s := &Summary{
		System: r.config.System, Preset: r.config.Preset, Done: why == nil,
		Updates: res.Update, UpdatesPlanned: int64(r.config.Training.MaxSteps), Tokens: res.Tokens,
		TrainLoss: checkpoint.Float(res.Loss), Metrics: toFloats(res.Metrics), StoppedEarly: res.StoppedEarly, Trouble: res.Trouble, Skipped: res.Skipped,
		FirstUpdate: res.FirstUpdate.Seconds() + r.loaded.Seconds(), Seconds: res.Seconds,
		TokensPerSecond: total.tokens / max(total.seconds, 1e-9), FlopsUtilization: share, Peak: r.report.Speed.PeakName,
		ArenaPlanned: r.program.Layout.Bytes, ArenaUsed: r.arenaUsed,
		PeakRSS: r.view.peak, PlannedTotal: r.report.Total,
		Precision: string(r.precision), Device: r.computer(), Threads: r.threads, Parameters: all,
		Untrained: append([]string{}, r.program.Untrained...), Checkpoint: res.Checkpoint, SaveRetries: st.Retries, SaveFailures: st.Failures,
	}
	optional := func(v float64, ok bool) *checkpoint.Float {
		if !ok {
			return nil
		}
		f := checkpoint.Float(v)
		return &f
	}
	v, ok := res.Metrics["eval_loss"]
	s.EvalLoss = optional(v, ok)
	s.BestEvalLoss = optional(res.Best, res.HasBest && r.data.Goal.Name == "eval_loss")
	s.BestUpdate = res.BestAt
	for _, b := range r.data.Baselines {
		switch b.Name {
		case "unigram":
			s.Unigram = optional(b.Value, true)
		case "bigram":
			s.Bigram = optional(b.Value, true)
		}
	}
	r.summary = s
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	r.printSummary(s, why)
	return r.store.Run().Replace(summaryFile, append(raw, '\n'))
}

func (r *run) printSummary(s *Summary, why error) {
	p := r.printf
	state := "done"
	switch {
	case errors.Is(why, train.ErrStopped):
		state = "stopped"
	case why != nil:
		state = "failed"
	case s.dead():
		state = "done, but NOTHING WAS LEARNED"
	case s.Trouble != nil:
		state = "done, but WHAT WAS LEARNED IS LOST"
	}
	p("\n%s: %d of %d updates, %s %s in %s\n", state, s.Updates, s.UpdatesPlanned, count(float64(s.Tokens)), r.model.Unit, shortDuration(time.Duration(s.Seconds*float64(time.Second))))
	p("  train loss        %.4f\n", float64(s.TrainLoss))
	if v, ok := s.Metrics[r.data.Goal.Name]; ok {
		p("  %-17s %.4f   (held out)\n", r.data.Goal.Name, float64(v))
	}
	for _, b := range r.data.Baselines {
		p("  %-17s %.4f   (same held-out data)\n", b.Name, b.Value)
	}
	if s.Trouble != nil && s.BestUpdate > 0 && s.BestUpdate < s.Updates {
		p("  best weights      those of update %d\n", s.BestUpdate)
	}
	if s.Trouble != nil {
		p("  trouble           %s\n", s.Trouble.Text)
		for i, h := range s.Trouble.Helps {
			p("  %-17s %s\n", [2]string{"what helps"}[min(i, 1)], h)
		}
	}
	p("  speed             %s %s/s", count(s.TokensPerSecond), r.model.Unit)
	if s.FlopsUtilization > 0 {
		p(", %.0f %% of the %s", 100*s.FlopsUtilization, s.Peak)
	}
	p("\n  memory            arena %s planned, %s used; process peak %s of %s planned\n",
		size.Bytes(s.ArenaPlanned), size.Bytes(s.ArenaUsed), size.Bytes(s.PeakRSS), size.Bytes(s.PlannedTotal))
	if s.SaveFailures > 0 || s.SaveRetries > 0 {
		p("  checkpoints       %d retries, %d saves given up\n", s.SaveRetries, s.SaveFailures)
	}
	if s.Checkpoint == "" {
		p("  checkpoint        none\n")
	} else {
		p("  checkpoint        %s\n", s.Checkpoint)
	}
	if !s.Done && s.Checkpoint == "" {
		return
	}
	p("\nNext:\n")
	if !s.Done {
		p("  snug train --resume --out %s   goes on\n", r.asOut(r.home()))
		return
	}
	switch {
	case r.system.Language != nil:
		p("  snug generate %s --prompt \"func main\"\n", r.home())
	case r.system.Predictor != nil:
		p("  snug predict %s FILE\n", r.home())
	}
	p("  snug eval %s\n  snug ckpt show %s\n", r.home(), r.home())
}

// count prints a large number shortly.
func count(x float64) string {
	switch {
	case x >= 1e9:
		return fmt.Sprintf("%.2fB", x/1e9)
	case x >= 1e6:
		return fmt.Sprintf("%.2fM", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.1fk", x/1e3)
	}
	return fmt.Sprintf("%.0f", x)
}

func shortUnit(u string) string {
	if u == "tokens" {
		return "tok"
	}
	return u
}

func shortDuration(d time.Duration) string {
	if d < 0 || d > 1000*time.Hour {
		return "?"
	}
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// toFloats are metrics as JSON can hold them, whatever their values are.
func toFloats(m map[string]float64) map[string]checkpoint.Float {
	out := make(map[string]checkpoint.Float, len(m))
	for k, v := range m {
		out[k] = checkpoint.Float(v)
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func base(path string) string { return filepath.Base(path) }

// heapInUse is the size of what lies in the garbage-collected heap.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// resetPeakRSS makes the kernel forget the peak so far, so that what the run
// reports is the run's and not that of preparing data. Where there is no such
// switch the peak includes the preparation.
func resetPeakRSS() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }
