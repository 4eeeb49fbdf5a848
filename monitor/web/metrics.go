package web

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/monitor"
)

// metrics answers Prometheus, in its text format 0.0.4.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	e := &exposition{at: map[string]*family{}}
	s.hub.mu.Lock()
	for _, x := range s.hub.entries() {
		if x.run != nil {
			e.run(x.Name, s.hub.head(x.run).Snapshot)
		}
	}
	s.hub.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(e.bytes()) // a disconnected client cannot be reached
}

// exposition is the text of the metrics, one family after the other.
type exposition struct {
	order []*family
	at    map[string]*family
	run1  string // being added
}

type family struct {
	name, kind, help string
	lines            bytes.Buffer
}

// add adds a sample. labels are names and values in turn; the run's comes first.
func (e *exposition) add(name, kind, help string, value float64, labels ...string) {
	f := e.at[name]
	if f == nil {
		f = &family{name: name, kind: kind, help: help}
		e.at[name] = f
		e.order = append(e.order, f)
	}
	all := append([]string{"run", e.run1}, labels...)
	f.lines.WriteString(name + "{")
	for i := 0; i < len(all); i += 2 {
		if i > 0 {
			f.lines.WriteByte(',')
		}
		fmt.Fprintf(&f.lines, `%s="%s"`, all[i], labelEscaper.Replace(all[i+1]))
	}
	f.lines.WriteString("} " + valueText(value) + "\n")
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func valueText(x float64) string {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 1):
		return "+Inf"
	case math.IsInf(x, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

func (e *exposition) bytes() []byte {
	var b bytes.Buffer
	for _, f := range e.order {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s", f.name, f.help, f.name, f.kind, f.lines.String())
	}
	return b.Bytes()
}

func (e *exposition) gauge(name, help string, value float64, labels ...string) {
	e.add(name, "gauge", help, value, labels...)
}

// known adds a figure if it is known.
func (e *exposition) known(name, help string, value float64) {
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		e.gauge(name, help, value)
	}
}

var states = []monitor.State{
	monitor.Empty, monitor.Starting, monitor.Running, monitor.Stuck, monitor.Silent, monitor.Died, monitor.Done, monitor.Stopped, monitor.Failed, monitor.Gone,
}

// run adds the metrics of a run.
func (e *exposition) run(name string, s *monitor.Snapshot) {
	e.run1 = name
	i, l := &s.Info, &s.Latest
	e.gauge("snug_run_info", "What the run is; always 1.", 1, "system", i.System, "preset", i.Preset, "phase", i.Phase, "device", i.Device, "precision", string(i.Precision), "version", i.Snug, "id", i.Run, "host", i.Host)
	for _, state := range states {
		e.gauge("snug_run_state", "1 for the state that the run is in, else 0.", one(state == s.State), "state", string(state))
	}
	e.gauge("snug_update", "Updates that are done.", float64(s.Update))
	e.gauge("snug_updates_planned", "Updates of the whole run.", float64(s.Updates))
	if !math.IsNaN(float64(l.LR)) { // there is a line of an update
		e.gauge("snug_loss", "Training loss of the newest update; NaN if it is not finite.", float64(l.Loss))
	}
	if s.Update > 0 && !s.Updated.IsZero() {
		e.gauge("snug_last_update_timestamp_seconds", "When the newest update was done.", unix(s.Updated))
	}
	if s.Evaluations != nil {
		last := s.Evaluations[len(s.Evaluations)-1]
		for _, metric := range slices.Sorted(maps.Keys(last.Metrics)) {
			e.gauge("snug_evaluation", "Metric of the newest evaluation.", float64(last.Metrics[metric]), "metric", metric)
		}
	}
	e.known("snug_learning_rate", "Learning rate of the newest update.", float64(l.LR))
	e.known("snug_grad_norm", "Gradient norm of the newest update, before clipping.", float64(l.GradNorm))
	e.known("snug_loss_scale", "Loss scale of fp16 training.", float64(l.Scale))
	if i.UnitsPer > 0 {
		e.add("snug_tokens_total", "counter", "Units of the data (tokens, examples, frames) that the run was trained on.", float64(s.Update*i.UnitsPer), "unit", i.Unit)
	}
	e.add("snug_skipped_updates_total", "counter", "Updates that were skipped because a gradient was not finite.", float64(l.Skipped))
	e.known("snug_units_per_second", "Units of the data per second.", float64(l.Rate))
	e.known("snug_update_duration_seconds", "Time of an update, the mean since the log line before.", float64(l.Seconds))
	e.known("snug_mfu_ratio", "Share of the device's peak that the products of the model use.", float64(l.Share))
	if s.Time.Updates > 0 {
		const help = "Share of the time of the last updates, by what it went to."
		e.gauge("snug_time_ratio", help, s.Time.Compute, "part", "compute")
		e.gauge("snug_time_ratio", help, s.Time.Data, "part", "data")
		e.gauge("snug_time_ratio", help, s.Time.Save, "part", "save")
		e.gauge("snug_time_ratio", help, s.Time.Evaluation, "part", "evaluation")
	}
	counts := map[monitor.Level]int{}
	for _, a := range s.Alerts {
		counts[a.Level]++
	}
	for _, level := range []monitor.Level{monitor.LevelInfo, monitor.LevelWarning, monitor.LevelError} {
		e.gauge("snug_alerts", "Alerts that hold now.", float64(counts[level]), "level", string(level))
	}
	for _, m := range []struct {
		kind  string
		bytes int64
	}{{"planned", s.Memory.Planned}, {"capacity", s.Memory.Capacity}, {"used", s.Memory.Used}, {"peak", s.Memory.Peak}, {"limit", s.Memory.Limit}} {
		if m.bytes > 0 {
			e.gauge("snug_memory_bytes", "Memory of the card, or of the process where no card computes.", float64(m.bytes), "kind", m.kind)
		}
	}
	if s.Sample != nil && !s.State.Over() && s.State != monitor.Gone {
		e.machine(s.Sample)
	}
}

// machine adds the figures of the newest sample.
func (e *exposition) machine(x *monitor.Sample) {
	e.gauge("snug_sample_timestamp_seconds", "When the machine was sampled last.", x.Time)
	e.gauge("snug_process_cpu_ratio", "Processors that the run keeps busy; 2 is two.", x.ProcessCPU/100)
	e.gauge("snug_machine_cpu_ratio", "Share of all processors that is busy.", x.MachineCPU/100)
	e.gauge("snug_process_resident_memory_bytes", "Resident memory of the run.", float64(x.RSS))
	e.gauge("snug_machine_memory_available_bytes", "Memory of the machine that is available.", float64(x.MemoryAvailable))
	g := x.GPU
	if g == nil {
		return
	}
	told := func(name, help string, value *float64, scale float64) {
		if value != nil {
			e.gauge(name, help, *value*scale)
		}
	}
	told("snug_gpu_busy_ratio", "Share of the time in which a kernel ran.", g.Busy, 0.01)
	told("snug_gpu_memory_busy_ratio", "Share of the time in which memory was read or written.", g.MemoryBusy, 0.01)
	told("snug_gpu_memory_used_bytes", "Memory of the card that all processes use.", g.Used, 1)
	told("snug_gpu_memory_total_bytes", "Memory of the card.", g.Total, 1)
	told("snug_gpu_temperature_celsius", "Temperature of the card.", g.Celsius, 1)
	told("snug_gpu_power_watts", "Power of the card.", g.Watts, 1)
	told("snug_gpu_power_cap_watts", "Power that the card may take.", g.Cap, 1)
	told("snug_gpu_clock_hertz", "Clock of the multiprocessors.", g.SM, 1e6)
	told("snug_gpu_clock_max_hertz", "Highest clock of the multiprocessors.", g.MaxSM, 1e6)
	e.gauge("snug_gpu_power_capped", "1 while the power cap holds the clocks down.", one(g.Throttle&nvml.PowerCap != 0))
	e.gauge("snug_gpu_slowed", "1 while heat or the power supply holds the clocks down.", one(g.Throttle&(nvml.Slow&^nvml.PowerCap) != 0))
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }
