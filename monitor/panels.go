package monitor

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
)

// The panels: the series of a panel share an axis.
const (
	PanelLoss   = "loss"
	PanelMetric = "metric " // followed by the metric's name: each has its own axis
	PanelRate   = "learning rate"
	PanelNorm   = "gradient norm"
	PanelScale  = "loss scale"
	PanelSpeed  = "speed"
	PanelShare  = "share of the peak"
	PanelUpdate = "time of an update"
	PanelUse    = "utilization"
	PanelMemory = "memory"
	PanelPower  = "power"
	PanelHeat   = "temperature"
	PanelClock  = "clocks"
	PanelSlowed = "clocks held down"
)

// line is a series before it is thinned.
type line struct {
	name, unit, panel string
	y                 func(i int) float64
}

// seriesOf returns series of n points; those never recorded are left out, except the
// loss.
func seriesOf(v View, n int, x func(i int) float64, lines []line) []Series {
	ys := make([]func(i int) float64, len(lines))
	for k := range lines {
		ys[k] = lines[k].y
	}
	out := []Series{}
	for k, t := range thin(n, v.Width, x, ys) {
		if l := &lines[k]; t.told || l.panel == PanelLoss && l.name == "loss" && n > 0 {
			out = append(out, Series{Name: l.name, Unit: l.unit, Panel: l.panel, X: t.x, Y: t.y, Points: n, NotFinite: t.notFinite})
		}
	}
	return out
}

// series returns the series of updates. A loss that is never finite is shown as such;
// series that were never recorded are left out.
func (r *Run) series(v View, info *Info) []Series {
	to := v.To
	if to <= 0 {
		to = math.MaxInt64
	}
	rows := r.curve.rows
	rows = rows[sort.Search(len(rows), func(i int) bool { return rows[i].update >= v.From }):]
	rows = rows[:sort.Search(len(rows), func(i int) bool { return rows[i].update > to })]
	out := ofRows(v, info, rows)
	evals, from := r.curve.evals, cmp.Or(v.evalsFrom, v.From)
	evals = evals[sort.Search(len(evals), func(i int) bool { return evals[i].Update >= from }):]
	evals = evals[:sort.Search(len(evals), func(i int) bool { return evals[i].Update > to })]
	first := min(1, len(out)) // after the loss
	return slices.Insert(out, first, r.ofEvals(v, evals)...)
}

// ofEvals returns the series of what evaluations measured.
func (r *Run) ofEvals(v View, evals []Evaluation) []Series {
	var lines []line
	for _, name := range r.curve.metrics() {
		panel := PanelMetric + name
		if name == "eval_loss" {
			panel = PanelLoss
		}
		lines = append(lines, line{name, "", panel, func(i int) float64 {
			if y, ok := evals[i].Metrics[name]; ok {
				return float64(y)
			}
			return math.NaN()
		}})
	}
	return seriesOf(v, len(evals), func(i int) float64 { return float64(evals[i].Update) }, lines)
}

// ofRows returns the series of lines of updates.
func ofRows(v View, info *Info, rows []row) []Series {
	var lines []line
	add := func(name, unit, panel string, y func(x *row) float64) {
		lines = append(lines, line{name, unit, panel, func(i int) float64 { return y(&rows[i]) }})
	}
	add("loss", "", PanelLoss, func(x *row) float64 { return x.loss })
	add("learning_rate", "", PanelRate, func(x *row) float64 { return x.lr })
	add("grad_norm", "", PanelNorm, func(x *row) float64 { return x.norm })
	add("loss_scale", "", PanelScale, func(x *row) float64 { return positive(float64(x.scale)) })
	add("rate", cmp.Or(info.Unit, "units")+"/s", PanelSpeed, (*row).speed)
	add("peak_share", "", PanelShare, func(x *row) float64 { return x.share(info.Plan.Peak) })
	per := func(part func(x *row) float64) func(x *row) float64 {
		return func(x *row) float64 {
			if x.since.Updates == 0 {
				return math.NaN()
			}
			return part(x) / float64(x.since.Updates)
		}
	}
	add("compute_seconds", "s", PanelUpdate, per(func(x *row) float64 { return x.since.Seconds - x.since.Wait }))
	add("data_seconds", "s", PanelUpdate, per(func(x *row) float64 { return x.since.Wait }))
	add("save_seconds", "s", PanelUpdate, per(func(x *row) float64 { return x.since.Save }))
	return seriesOf(v, len(rows), func(i int) float64 { return float64(rows[i].update) }, lines)
}

// machineSeries returns the series of the machine over time.
func (r *Run) machineSeries(v View, card bool) []Series {
	var lines []line
	add := func(name, unit, panel string, y func(s *Sample) float64) {
		lines = append(lines, line{name, unit, panel, func(i int) float64 { return y(&r.machine[i]) }})
	}
	gpu := func(name, unit, panel string, y func(g *GPUSample) *float64) {
		add(name, unit, panel, func(s *Sample) float64 {
			if s.GPU == nil {
				return math.NaN()
			}
			if f := y(s.GPU); f != nil {
				return *f
			}
			return math.NaN()
		})
	}
	gpu("gpu_busy", "percent", PanelUse, func(g *GPUSample) *float64 { return g.Busy })
	gpu("gpu_memory_busy", "percent", PanelUse, func(g *GPUSample) *float64 { return g.MemoryBusy })
	add("process_cpu", "percent of a processor", PanelUse, func(s *Sample) float64 { return s.ProcessCPU })
	add("machine_cpu", "percent", PanelUse, func(s *Sample) float64 { return s.MachineCPU })
	gpu("gpu_memory_used", "bytes", PanelMemory, func(g *GPUSample) *float64 { return g.Used })
	add("rss", "bytes", PanelMemory, func(s *Sample) float64 { return positive(float64(s.RSS)) })
	if !card {
		add("memory_available", "bytes", PanelMemory, func(s *Sample) float64 { return positive(float64(s.MemoryAvailable)) })
	}
	gpu("gpu_watts", "W", PanelPower, func(g *GPUSample) *float64 { return g.Watts })
	gpu("gpu_watts_cap", "W", PanelPower, func(g *GPUSample) *float64 { return g.Cap })
	gpu("gpu_celsius", "°C", PanelHeat, func(g *GPUSample) *float64 { return g.Celsius })
	gpu("gpu_sm_mhz", "MHz", PanelClock, func(g *GPUSample) *float64 { return g.SM })
	gpu("gpu_memory_mhz", "MHz", PanelClock, func(g *GPUSample) *float64 { return g.Memory })
	gpu("gpu_power_capped", "", PanelSlowed, func(g *GPUSample) *float64 { return &g.PowerCapped })
	gpu("gpu_slowed", "", PanelSlowed, func(g *GPUSample) *float64 { return &g.Slowed })
	return seriesOf(v, len(r.machine), func(i int) float64 { return r.machine[i].Time }, lines)
}

// positive is x, or NaN if it is not recorded.
func positive(x float64) float64 {
	if x <= 0 {
		return math.NaN()
	}
	return x
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
