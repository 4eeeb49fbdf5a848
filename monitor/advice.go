package monitor

import (
	"strings"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/train/checkpoint"
)

// deviceSummary returns the basis of advice: samples taken while the run trained, and
// where the time of its last updates went.
func (r *Run) deviceSummary(s *Snapshot) device.Summary {
	i := &s.Info
	d := device.Summary{
		Device: i.Device, MemoryTotal: s.Memory.Limit, Processors: i.Processors, BatchSize: i.BatchSize, Accumulation: i.Accumulation,
		DataWorkers: i.DataWorkers, Used: i.Precision, Best: i.Best, Next: i.Plan.Next,
	}
	if i.BatchSize == 0 {
		return d // of an earlier version, which does not say
	}
	if s.Time.Updates >= recentUpdates {
		d.DataWait, d.SaveWait = s.Time.Data, s.Time.Save
	}
	looks := 0
	for k := len(r.machine) - 1; k >= 0 && looks < recentSamples; k-- {
		x := &r.machine[k]
		if x.Update <= i.From || x.Doing == Evaluating || x.Doing == Finishing {
			continue // before the first update, or during other work
		}
		n := x.looks()
		looks += n
		d.Samples += n
		d.ProcessCPU.AddMean(x.ProcessCPU, n)
		d.MachineCPU.AddMean(x.MachineCPU, n)
		switch {
		case !i.Card:
			d.Utilization.AddMean(min(x.ProcessCPU/float64(max(i.Threads, 1)), 100), n)
		case x.GPU != nil && x.GPU.Busy != nil:
			d.Utilization.AddMean(*x.GPU.Busy, n)
		}
	}
	if d.Utilization == (device.Range{}) {
		d.Samples = 0 // how the device was used is unknown
	}
	d.Memory.Peak = float64(s.Memory.Peak)
	return d
}

// failedSave reports whether a line about a checkpoint is about a failed save.
func failedSave(text string) bool {
	for _, kind := range []checkpoint.EventKind{checkpoint.Failed, checkpoint.Bad} {
		if strings.HasPrefix(text, string(kind)+" ") || strings.HasPrefix(text, string(kind)+":") {
			return true
		}
	}
	return false
}
