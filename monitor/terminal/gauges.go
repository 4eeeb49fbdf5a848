package terminal

import (
	"fmt"
	"math"
	"strings"

	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
)

// gauge is a bar with a name and figures.
type gauge struct {
	name  string
	parts []part // of the bar, from the left, with their shares
	mark  float64
	text  string
	style style // of the text
}

type part struct {
	share float64
	style style
	fill  string
}

// gauges returns the gauges of a run, the most telling first.
func gauges(s *monitor.Snapshot) (list []gauge) {
	if t := &s.Time; t.Updates > 0 && t.Seconds > 0 {
		g := gauge{name: "time", parts: []part{{t.Compute, good, "█"}, {t.Data, bad, "▓"}, {t.Save, warn, "▒"}, {t.Evaluation, curve0, "░"}}}
		g.text = fmt.Sprintf("compute %.0f %%", 100*t.Compute)
		for _, x := range []struct {
			name  string
			share float64
		}{{"data", t.Data}, {"saving", t.Save}, {"eval", t.Evaluation}} {
			if x.share >= 0.005 {
				g.text += fmt.Sprintf(" %s %.0f %%", x.name, 100*x.share)
			}
		}
		list = append(list, g)
	}
	if m := &s.Memory; m.Used > 0 || m.Planned > 0 {
		list = append(list, memoryGauge(m))
	}
	if x := s.Sample; x != nil {
		if x.GPU != nil {
			list = append(list, cardGauge(x.GPU))
		}
		list = append(list, processorGauge(s, x))
	}
	return list
}

func memoryGauge(m *monitor.Memory) gauge {
	whole := float64(max(m.Limit, m.Capacity))
	if whole == 0 {
		whole = 1.25 * float64(max(m.Used, m.Planned))
	}
	share := float64(m.Used) / whole
	g := gauge{name: "memory", parts: []part{{share, level(share, 0.85, 0.95), "█"}}, mark: float64(m.Planned) / whole}
	if m.Used > 0 {
		g.text = size.Bytes(m.Used).String()
	}
	if m.Limit > 0 {
		g.text += " of " + size.Bytes(m.Limit).String()
	}
	if m.Planned > 0 {
		g.text += ", " + size.Bytes(m.Planned).String() + " planned"
	}
	if m.Peak > m.Used+m.Used/50 {
		g.text += ", peak " + size.Bytes(m.Peak).String()
	}
	g.text = strings.TrimPrefix(strings.TrimPrefix(g.text, " of "), ", ")
	return g
}

func processorGauge(s *monitor.Snapshot, x *monitor.Sample) gauge {
	own := x.ProcessCPU / 100 / float64(max(s.Info.Processors, 1))
	others := max(0, x.MachineCPU/100-own)
	g := gauge{name: "cpu", parts: []part{{min(own, 1), good, "█"}, {min(others, 1), warn, "▒"}}}
	switch {
	case s.Info.Run == "" && s.Info.System == "" && s.State == "":
		g.text = fmt.Sprintf("%.0f %% of %s", x.MachineCPU, size.Of(s.Info.Processors, "processor"))
	case s.Info.Processors > 0:
		g.text = fmt.Sprintf("%.1f of %s, machine %.0f %%", x.ProcessCPU/100, size.Of(s.Info.Processors, "processor"), x.MachineCPU)
	default:
		g.text = fmt.Sprintf("%.1f processors, machine %.0f %%", x.ProcessCPU/100, x.MachineCPU)
	}
	if x.Load > 0 {
		g.text += fmt.Sprintf(", load %.1f", x.Load)
	}
	return g
}

// cardGauge shows how busy the card is. Figures that a card does not report are left out.
func cardGauge(x *monitor.GPUSample) gauge {
	g := gauge{name: "card"}
	var parts []string
	add := func(v *float64, format string, args ...any) {
		if v != nil {
			parts = append(parts, fmt.Sprintf(format, append([]any{*v}, args...)...))
		}
	}
	if x.Busy != nil {
		g.parts = []part{{*x.Busy / 100, good, "█"}}
	}
	add(x.Busy, "%.0f %%")
	if x.Cap != nil {
		add(x.Watts, "%.0f/%.0f W", *x.Cap)
	} else {
		add(x.Watts, "%.0f W")
	}
	add(x.Celsius, "%.0f °C")
	if x.MaxSM != nil {
		add(x.SM, "%.0f/%.0f MHz", *x.MaxSM)
	} else {
		add(x.SM, "%.0f MHz")
	}
	if slow := x.Throttle & nvml.Slow; slow != 0 {
		parts = append(parts, slow.String())
		if g.style = plain; slow&^nvml.PowerCap != 0 {
			g.style = bad
		}
	}
	g.text = strings.Join(parts, " ")
	return g
}

// level returns the color of a share.
func level(x, high, full float64) style {
	switch {
	case x >= full:
		return bad
	case x >= high:
		return warn
	}
	return good
}

// drawGauges shows bars in as many columns as there is room for; on a low screen only one
// row of them.
func (m Model) drawGauges(c *canvas, s *shown, y int) int {
	list := gauges(s.Snapshot)
	columns := min(clamp(m.width/56, 1, 4), max(1, len(list)))
	rows := (len(list) + columns - 1) / columns
	if m.height < 16 {
		rows = min(rows, 1)
	}
	for i, g := range list[:min(len(list), rows*columns)] {
		x, end := i%columns*m.width/columns, (i%columns+1)*m.width/columns-1
		g.draw(c, x, y+i/columns, end-x)
	}
	return y + rows
}

// draw draws a gauge: its name, the bar, and figures.
func (g *gauge) draw(c *canvas, x, y, width int) {
	const label = 7
	bar := clamp(width/4, 6, 30)
	c.put(x, y, label, faint, g.name)
	x += label
	at := 0.0
	c.put(x, y, 1, faint, "[")
	for i := range bar {
		c.put(x+1+i, y, 1, faint, "·")
	}
	for _, p := range g.parts {
		from := at
		if at += max(0, p.share); math.IsNaN(at) {
			break
		}
		at = min(at, 1)
		for i := int(math.Round(from * float64(bar))); i < min(bar, int(math.Round(at*float64(bar)))); i++ {
			c.put(x+1+i, y, 1, p.style, p.fill)
		}
	}
	if g.mark > 0 && g.mark <= 1 {
		c.put(x+1+min(bar-1, int(g.mark*float64(bar))), y, 1, strong, "┃")
	}
	c.put(x+1+bar, y, 1, faint, "]")
	c.put(x+3+bar, y, width-label-3-bar, g.style, g.text)
}
