package terminal

import (
	"math"
	"slices"
	"strings"

	"github.com/snug-ml/snug/monitor"
)

// order is the order of the panels; the monitored metric comes after the loss.
var order = []string{
	monitor.PanelLoss, monitor.PanelUse, monitor.PanelSpeed, monitor.PanelNorm, monitor.PanelRate, monitor.PanelMemory, monitor.PanelMetric,
	monitor.PanelShare, monitor.PanelUpdate, monitor.PanelPower, monitor.PanelHeat, monitor.PanelClock, monitor.PanelSlowed, monitor.PanelScale,
}

// rank is the place of a panel; first is the monitored metric's.
func rank(panel, first string) int {
	if panel == first {
		return 0
	}
	if strings.HasPrefix(panel, monitor.PanelMetric) {
		panel = monitor.PanelMetric
	}
	if i := slices.Index(order, panel); i >= 0 {
		return i
	}
	return len(order)
}

// at returns the run shown in detail; nil: none is known.
func (m *Model) at() *shown {
	if m.run >= len(m.shown) {
		return nil
	}
	return m.shown[m.run]
}

// overlaid returns the runs whose curves are shown, the one in detail last, so that it is
// on top.
func (m *Model) overlaid() (runs []*shown) {
	at := m.at()
	if at == nil {
		return nil
	}
	for _, s := range m.shown {
		if s != at && s.group == at.group {
			runs = append(runs, s)
		}
	}
	return append(runs, at)
}

// plots returns the panels in order.
func (m *Model) plots() []*plot {
	byPanel := map[string]*plot{}
	var list []*plot
	runs := m.overlaid()
	for _, s := range runs {
		for _, x := range s.Series {
			list = m.add(list, byPanel, s, &x, len(runs), false)
		}
		for _, x := range s.Machine {
			if x.Name == "memory_available" && s.Memory.Peak > 0 && s.Info.System != "" {
				continue // it would flatten the run's own use
			}
			list = m.add(list, byPanel, s, &x, len(runs), true)
		}
	}
	first := ""
	if at := m.at(); at != nil {
		first = monitor.PanelMetric + at.Info.Monitored
	}
	slices.SortStableFunc(list, func(a, b *plot) int { return rank(a.panel, first) - rank(b.panel, first) })
	window(list, m.zoom)
	return list
}

// add puts a series into its panel.
func (m *Model) add(list []*plot, byPanel map[string]*plot, s *shown, x *monitor.Series, runs int, machine bool) []*plot {
	p := byPanel[x.Panel]
	if p == nil {
		p = &plot{panel: x.Panel, title: strings.ReplaceAll(strings.TrimPrefix(x.Panel, monitor.PanelMetric), "_", " "), unit: x.Unit, clock: machine, legend: runs == 1}
		if x.Panel == monitor.PanelShare {
			p.unit = "share"
		}
		p.log = m.log && (x.Panel == monitor.PanelLoss || x.Panel == monitor.PanelNorm || x.Panel == monitor.PanelRate)
		byPanel[x.Panel] = p
		list = append(list, p)
	}
	if x.Panel == monitor.PanelUse && p.unit != "percent" {
		p.unit = "percent"
	}
	p.bad += x.NotFinite
	k := curve{name: name(x.Name), x: x.X, y: x.Y, style: curveStyle(len(p.curves))}
	if runs > 1 {
		k.style = curveStyle(s.index)
		if len(p.curves) > 0 {
			k.name = s.label
		}
	}
	if machine {
		k.x = since(x.X, s)
	}
	if n := s.Info.Processors; x.Name == "process_cpu" && n > 0 {
		k.y = slices.Clone(x.Y) // like the machine's: of all processors
		for i := range k.y {
			k.y[i] /= monitor.Number(n)
		}
	}
	if evaluated(x) {
		if k.mark = "o"; runs == 1 {
			k.style = curveStyle(1)
		}
	} else if runs > 1 && !m.opts.Color && s != m.at() {
		k.mark = string(rune('a' + s.index%26)) // in place of colors
	}
	if weight := smoothings[m.smooth]; weight > 0 && k.mark == "" && !machine {
		p.curves = append(p.curves, curve{name: k.name, x: k.x, y: k.y, style: faint, quiet: true})
		k.y = monitor.Smooth(k.y, weight)
		if !m.opts.Color {
			p.curves = p.curves[:len(p.curves)-1] // both would look the same
		}
	}
	p.curves = append(p.curves, k)
	return list
}

// evaluated reports whether a series consists of evaluations: few points, each marked.
func evaluated(x *monitor.Series) bool {
	return x.Name == "eval_loss" || strings.HasPrefix(x.Panel, monitor.PanelMetric) && x.Points == 1
}

// since converts times to seconds after the run began.
func since(x []monitor.Number, s *shown) []monitor.Number {
	if len(x) == 0 {
		return x
	}
	zero := float64(x[0])
	if !s.Began.IsZero() {
		zero = float64(s.Began.UnixMilli()) / 1e3
	}
	out := make([]monitor.Number, len(x))
	for i, v := range x {
		out[i] = v - monitor.Number(zero)
	}
	return out
}

// name returns the readable name of a series.
func name(series string) string {
	switch series {
	case "process_cpu":
		return "this run"
	case "machine_cpu":
		return "machine"
	case "gpu_busy":
		return "card"
	case "gpu_memory_busy":
		return "its memory"
	case "gpu_memory_used":
		return "card"
	case "rss":
		return "this run"
	case "memory_available":
		return "available"
	case "gpu_watts_cap":
		return "cap"
	}
	series = strings.TrimSuffix(strings.TrimPrefix(series, "gpu_"), "_seconds")
	return strings.ReplaceAll(series, "_", " ")
}

// window gives the panels of updates one range, and those of time another: the last
// 1/2^zoom of each.
func window(plots []*plot, zoom int) {
	for _, clock := range []bool{false, true} {
		low, high := math.Inf(1), math.Inf(-1)
		for _, p := range plots {
			for i := range p.curves {
				if x := p.curves[i].x; p.clock == clock && len(x) > 0 {
					low, high = min(low, float64(x[0])), max(high, float64(x[len(x)-1]))
				}
			}
		}
		if zoom > 0 && !clock {
			low = 0 // older points were not requested
		}
		for _, p := range plots {
			if p.clock == clock {
				p.from, p.to = high-(high-low)/float64(int(1)<<zoom), high
			}
		}
	}
}
