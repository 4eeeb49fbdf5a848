package session

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// SummaryFile is the name of the file with the [Summary] in a run directory.
const SummaryFile = "summary.json"

// Summary is the content of summary.json: the figures of a run.
type Summary struct {
	System string `json:"system"`
	Preset string `json:"preset,omitempty"`
	Done   bool   `json:"done"`
	// Run is the identity of the run.
	Run string `json:"run,omitempty"`

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
	// Warning says what is wrong with what was learned.
	Warning *train.Warning `json:"trouble,omitempty"`
	Skipped int64          `json:"skipped_updates"`

	TokensPerSecond  float64 `json:"tokens_per_second"`
	FlopsUtilization float64 `json:"flops_utilization"`
	Peak             string  `json:"flops_utilization_of,omitempty"`
	FirstUpdate      float64 `json:"seconds_to_first_update"`
	// Ranks is the number of processes, if there are several. Exchange is the share of time in which they
	// waited for sums of gradients and for each other, and Hidden the share in which gradients were added up
	// while computing.
	Ranks    int     `json:"ranks,omitempty"`
	Exchange float64 `json:"exchange_share,omitempty"`
	Hidden   float64 `json:"exchange_hidden_share,omitempty"`
	// Over is the MPI library used for the exchange; empty if it was TCP.
	Over    string  `json:"exchanged_over,omitempty"`
	Seconds float64 `json:"seconds"`

	ArenaPlanned int64 `json:"arena_planned_bytes"`
	ArenaUsed    int64 `json:"arena_used_bytes"`
	PeakRSS      int64 `json:"peak_rss_bytes"`
	PlannedTotal int64 `json:"planned_total_bytes"`

	// Card is the use of the card; nil if there was none or it cannot be read.
	Card *CardUse `json:"card,omitempty"`

	// Advice and Alerts are based on measurements, as a monitor shows them.
	Advice []device.Advice `json:"advice,omitempty"`
	Alerts []monitor.Alert `json:"alerts,omitempty"`

	Precision  string   `json:"precision"`
	Device     string   `json:"device"`
	Threads    int      `json:"threads"`
	Parameters int64    `json:"parameters"`
	Untrained  []string `json:"parameters_without_gradient"`

	// Checkpoint is the newest, and BestCheckpoint the one that represents the run, if that is another.
	Checkpoint     string `json:"checkpoint,omitempty"`
	BestCheckpoint string `json:"best_checkpoint,omitempty"`

	SaveRetries  int64 `json:"save_retries"`
	SaveFailures int64 `json:"save_failures"`
}

// Dead reports whether the run learned nothing that another run could start from.
func (s *Summary) Dead() bool { return s.Warning != nil && s.Warning.Kind != train.Lost }

func (r *run) summarize(res *train.Result, why error, arena, peak int64) error {
	all, _ := r.program.Parameters()
	st := r.store.Status()
	share := r.Share(r.report, r.speed.flops/max(r.speed.seconds, 1e-9))
	r.keepPeak()
	loss := res.Loss
	if res.Update == 0 {
		loss = math.NaN() // there is none
	}
	s := &Summary{
		System: r.Config.System, Preset: r.Config.Preset, Done: why == nil, Run: r.store.Run().ID(),
		Updates: res.Update, UpdatesPlanned: int64(r.Config.Training.MaxSteps), Tokens: res.Tokens,
		TrainLoss: checkpoint.Float(loss), Metrics: train.Floats(res.Metrics), StoppedEarly: res.StoppedEarly, Warning: res.Warning, Skipped: res.Skipped,
		FirstUpdate: res.FirstUpdate.Seconds() + r.loaded.Seconds(), Seconds: res.Seconds,
		TokensPerSecond: r.speed.tokens / max(r.speed.seconds, 1e-9), FlopsUtilization: share, Peak: r.report.Speed.PeakName,
		Ranks: r.World, Exchange: r.speed.exchange / max(r.speed.seconds, 1e-9), Hidden: r.speed.hidden / max(r.speed.seconds, 1e-9), Over: r.carrier.String(),
		ArenaPlanned: r.program.Layout.Bytes, ArenaUsed: arena,
		PeakRSS: peak, PlannedTotal: r.report.Total, Card: r.telemetry.cardUse(r.speed.seconds),
		Precision: string(r.Precision), Device: r.Computer(), Threads: r.Threads, Parameters: all,
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
	s.BestEvalLoss = optional(res.Best, res.HasBest && r.data.Monitor.Name == "eval_loss")
	s.BestUpdate = res.BestAt
	for _, b := range r.data.Baselines {
		switch b.Name {
		case "unigram":
			s.Unigram = optional(b.Value, true)
		case "bigram":
			s.Bigram = optional(b.Value, true)
		}
	}
	if m := r.review(); m != nil {
		s.Advice = m.Advice
		s.Alerts = slices.DeleteFunc(m.Alerts, func(a monitor.Alert) bool {
			return a.Kind == monitor.AlertLearning || a.Kind == monitor.AlertWarning // these were reported as they happened, and Warning is the final one
		})
	}
	if best := checkpoint.Foremost(r.home()); s.Checkpoint != "" && filepath.Base(best) != filepath.Base(s.Checkpoint) {
		s.BestCheckpoint = best
	}
	r.summary = s
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	r.emit(Finished{r.Setup, s, why, r.home(), r.asOut(r.home()), r.data.Monitor, r.data.Baselines})
	return r.store.Run().Replace(SummaryFile, append(raw, '\n'))
}

// liveHeap returns the size of the heap without garbage.
func liveHeap() int64 {
	runtime.GC()
	return heapInUse()
}

// heapInUse returns the size of the garbage-collected heap in use, which includes garbage since the last
// collection.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// heapAdded returns by how much the heap has grown since it had base bytes, in whole MiB: the number of batches
// that a loader has ready differs from run to run, and their plans should not.
func heapAdded(base int64) int64 {
	const whole = 1 << 20
	return (max(heapInUse()-base, 0) + whole - 1) / whole * whole
}

// peakRSS returns the peak memory of this process since resetPeakRSS.
func peakRSS() int64 {
	s := device.NewSampler()
	defer func() { _ = s.Close() }() // files of /proc, read only
	return s.Sample().PeakRSS
}

// resetPeakRSS makes the kernel forget the peak so far, so that the run reports its own peak and not that of
// preparing data. On systems without this switch the peak includes the preparation.
func resetPeakRSS() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }
