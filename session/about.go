package session

import (
	"errors"
	"os"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/monitor"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// aboutRun collects what a monitor needs to know about the run.
func (r *run) aboutRun(from int64) *monitor.Info {
	cfg, rep := r.Config, r.report
	c := rep.Run.Settings
	host, _ := os.Hostname() // empty if unknown
	best, _, err := device.ChoosePrecision(device.Auto, r.own())
	if err != nil {
		best = ""
	}
	i := &monitor.Info{
		Snug: Version(), Run: r.store.Run().ID(), Host: host, PID: os.Getpid(), At: time.Now().UTC(), From: from,
		System: cfg.System, Preset: cfg.Preset, Phase: r.phase.String(),
		Device: r.Computer(), Card: r.Card != nil, Threads: r.Threads, Processors: r.Host.CPU.Logical, Arithmetic: r.Backend.Arithmetic(), Notes: r.Notes,
		Precision: r.Precision, Reason: r.Reason, Best: best, Parameters: rep.Parameters, Trained: rep.Trained,
		Updates: int64(cfg.Training.MaxSteps), Warmup: int64(cfg.Training.WarmupSteps), BatchSize: c.MicroBatch, Accumulation: max(1, c.Accumulation),
		Unit: r.Model.Unit, UnitsPer: int64(c.Effective()) * r.Model.UnitsPerRow, DataWorkers: cfg.Data.Workers,
		Plan: monitor.Plan{
			Arena: rep.Arena, Total: rep.Total, Capacity: rep.Capacity, Recompute: c.Recompute.String(), Next: r.next,
			Seconds: rep.Time.Update, Note: rep.Time.Note, FLOPs: rep.Time.Model, Peak: rep.Speed.Peak, PeakName: rep.Speed.PeakName,
		},
		Settings: map[string]string{},
	}
	i.Plan.Rate, _ = rep.Time.Rate()
	for _, x := range rep.Components {
		i.Plan.Components = append(i.Plan.Components, monitor.Component{Name: x.Name, Bytes: x.Bytes, Arena: x.Arena})
	}
	if r.data.Evaluator != nil {
		i.Monitored, i.HigherIsBetter = r.data.Monitor.Name, r.data.Monitor.Higher
	}
	for _, b := range r.data.Baselines {
		i.Baselines = append(i.Baselines, monitor.Baseline{Name: b.Name, Value: checkpoint.Float(b.Value)})
	}
	for _, v := range cfg.Values() {
		i.Settings[v.Key] = v.Text
	}
	return i
}

// performance returns what the session has measured so far, for a checkpoint's metadata.
func (r *run) performance() *checkpoint.Performance {
	s := r.report.Run.Settings
	p := &checkpoint.Performance{
		Unit: r.Model.Unit, UnitsPerSecond: r.speed.tokens / max(r.speed.seconds, 1e-9), Updates: r.speed.updates,
		BatchSize: s.MicroBatch, EffectiveBatch: int64(s.Effective()),
		PeakRSS: peakRSS(), PlannedTotal: r.report.Total, ArenaPlanned: r.program.Layout.Bytes,
	}
	if use := r.telemetry.cardUse(r.speed.seconds); use != nil {
		p.CardPeak = use.Memory
	}
	return p
}

// nextBatch plans the run with twice the micro-batch, keeping the batch of an update if possible. It returns
// nil if there is no such plan.
func (r *run) nextBatch(target plan.Target) *device.NextBatch {
	c := r.report.Run.Settings
	next := &device.NextBatch{BatchSize: 2 * c.MicroBatch, Accumulation: max(1, c.Accumulation)}
	if next.Accumulation%2 == 0 {
		next.Accumulation, next.SameUpdate = next.Accumulation/2, true
	}
	c.MicroBatch, c.Accumulation = next.BatchSize, next.Accumulation
	rep, err := r.Planner(target).Plan(c)
	if err != nil {
		return nil
	}
	next.Bytes, next.Capacity, next.Fits = rep.Total, rep.Capacity, rep.Fits
	return next
}

// ended records how the session ended, if it ever began.
func (r *run) ended(err error) {
	if r.telemetry == nil {
		return
	}
	end := &monitor.End{At: time.Now().UTC(), State: monitor.Done, Update: r.lastUpdate}
	level := monitor.LevelInfo
	switch {
	case err == nil:
	case errors.Is(err, train.ErrStopped):
		end.State, end.Text = monitor.Stopped, err.Error()
	default:
		end.State, end.Text, level = monitor.Failed, err.Error(), monitor.LevelError
	}
	text := string(end.State)
	if end.Text != "" {
		text += ": " + end.Text
	}
	r.about.End = end
	_ = r.store.Run().ReplaceJSON(monitor.InfoFile, r.about) // the run itself already reports how it ended
	if r.tracking != nil {
		r.tracking.End(trackedStatus(end.State))
	}
	r.telemetry.say(monitor.LogLine{Time: float64(end.At.UnixMilli()) / 1e3, Level: level, Update: end.Update, Text: text})
	r.telemetry.end()
}

// review returns the run so far as a monitor sees it, or nil if nothing can be read.
func (r *run) review() *monitor.Snapshot {
	r.telemetry.written()
	m, err := monitor.Open(r.home())
	if err != nil {
		return nil
	}
	return m.Snapshot(time.Now(), monitor.View{Width: 1})
}
