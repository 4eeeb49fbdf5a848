package monitor

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sort"
)

// The panels: series of one share an axis.
const (
	PanelLoss   = "loss"
	PanelMetric = "metric " // with the metric's name: each has an axis of its own
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

// curveOf is a series of n points.
func curveOf(v View, name, unit, panel string, n int, point func(i int) (x, y float64)) (s Series, ok bool) {
	any := false
	for i := 0; i < n && !any; i++ {
		_, y := point(i)
		any = !math.IsNaN(y)
	}
	s = Series{Name: name, Unit: unit, Panel: panel, Points: n}
	s.X, s.Y, s.NotFinite = Thin(n, v.Width, point)
	return s, any
}

// series are those of updates. A loss that is never finite is shown as such; what
// was never recorded is left out.
func (r *Run) series(v View, info *Info) []Series {
	out := []Series{}
	rows, evals := r.curve.rows, r.curve.evals
	to := v.To
	if to <= 0 {
		to = math.MaxInt64
	}
	rows = rows[sort.Search(len(rows), func(i int) bool { return rows[i].update >= v.From }):]
	rows = rows[:sort.Search(len(rows), func(i int) bool { return rows[i].update > to })]
	evalsFrom := cmp.Or(v.evalsFrom, v.From)
	evals = evals[sort.Search(len(evals), func(i int) bool { return evals[i].Update >= evalsFrom }):]
	evals = evals[:sort.Search(len(evals), func(i int) bool { return evals[i].Update > to })]
	add := func(name, unit, panel string, y func(x *row) float64) {
		s, ok := curveOf(v, name, unit, panel, len(rows), func(i int) (float64, float64) { return float64(rows[i].update), y(&rows[i]) })
		if ok || name == "loss" && len(rows) > 0 {
			out = append(out, s)
		}
	}
	add("loss", "", PanelLoss, func(x *row) float64 { return x.loss })
	for _, name := range r.curve.metrics() {
		panel := PanelMetric + name
		if name == "eval_loss" {
			panel = PanelLoss
		}
		s, ok := curveOf(v, name, "", panel, len(evals), func(i int) (float64, float64) {
			y, ok := evals[i].Metrics[name]
			if !ok {
				y = Number(math.NaN())
			}
			return float64(evals[i].Update), float64(y)
		})
		if ok {
			out = append(out, s)
		}
	}
	unit := info.Unit
	if unit == "" {
		unit = "units"
	}
	add("learning_rate", "", PanelRate, func(x *row) float64 { return x.lr })
	add("grad_norm", "", PanelNorm, func(x *row) float64 { return x.norm })
	add("loss_scale", "", PanelScale, func(x *row) float64 { return positive(float64(x.scale)) })
	add("rate", unit+"/s", PanelSpeed, (*row).speed)
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
	return out
}

// machineSeries are those of the machine over time.
func (r *Run) machineSeries(v View, card bool) []Series {
	out := []Series{}
	add := func(name, unit, panel string, y func(s *Sample) float64) {
		s, ok := curveOf(v, name, unit, panel, len(r.machine), func(i int) (float64, float64) { return r.machine[i].Time, y(&r.machine[i]) })
		if ok {
			out = append(out, s)
		}
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
	return out
}

// positive is x, or NaN where it is not recorded.
func positive(x float64) float64 {
	if x <= 0 {
		return math.NaN()
	}
	return x
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
