package terminal

import (
	"fmt"
	"math"
	"strings"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
)

// The minimum size of a panel.
const (
	panelWidth  = 38
	panelHeight = 7
)

// screen draws everything, from the top and the bottom to the panels in between.
func (m Model) screen() *canvas {
	c := newCanvas(m.width, m.height, &m.opts.Looks)
	if m.help {
		m.drawHelp(c)
		return c
	}
	top, bottom := 0, m.height
	if !m.opts.Once {
		bottom--
		m.drawKeys(c, bottom)
	}
	at := m.at()
	if at == nil {
		text := "reading"
		if m.frame.Err != "" {
			text = m.frame.Err
		}
		c.put(0, 0, m.width, warn, text)
		return c
	}
	top = m.drawTabs(c, top)
	top = m.drawHead(c, at, top)
	if m.messages {
		m.drawMessages(c, at, area{0, top, m.width, bottom - top})
		return c
	}
	if !m.full {
		top = m.drawGauges(c, at, top)
		bottom = m.drawLog(c, at, bottom)
		bottom = m.drawNotices(c, at, top, bottom)
	}
	m.drawPlots(c, area{0, top, m.width, bottom - top})
	return c
}

// drawTabs lists the runs, if there are several, each in the color of its curves.
func (m Model) drawTabs(c *canvas, y int) int {
	if len(m.shown) < 2 {
		return y
	}
	x := 0
	for i, s := range m.shown {
		mark, look := " ", curveStyle(i)
		if i == m.run {
			mark = "▶"
		}
		if len(m.overlaid()) == 1 && i != m.run {
			look = faint
		}
		key := ""
		if i < 9 {
			key = fmt.Sprintf("%d ", i+1)
		}
		x = c.put(x, y, m.width-x, look, mark+key+s.label)
		if i != m.run && !m.opts.Color && len(m.overlaid()) > 1 {
			x = c.put(x, y, m.width-x, look, " "+string(rune('a'+i%26)))
		}
		x = c.put(x, y, m.width-x, plain, "  ")
	}
	return y + 1
}

// stateStyle returns the color of a state.
func stateStyle(s monitor.State) style {
	switch s {
	case monitor.Running, monitor.Done:
		return good
	case monitor.Died, monitor.Failed, monitor.Stuck, monitor.Gone:
		return bad
	case monitor.Empty:
		return plain
	}
	return warn
}

// drawHead shows what the run is, how far it has come, and its latest figures.
func (m Model) drawHead(c *canvas, s *shown, y int) int {
	x := c.put(0, y, m.width*2/3, strong, s.label)
	if s.State != "" {
		state := string(s.State)
		if s.Doing != "" {
			state += ", " + string(s.Doing)
		}
		x = c.put(x+2, y, m.width-x-2, stateStyle(s.State), state)
	}
	for _, part := range progress(s.Snapshot) {
		if x+2+len(part) <= m.width {
			x = c.put(x+2, y, m.width-x-2, plain, part)
		}
	}
	y++
	if about := about(s.Snapshot); about != "" && m.height >= 16 {
		c.put(0, y, m.width, faint, about)
		y++
	}
	if s.Why != "" && s.State != monitor.Done {
		c.put(0, y, m.width, stateStyle(s.State), s.Why)
		y++
	}
	if latest := latest(s.Snapshot); len(latest) > 0 {
		x = 0
		for _, part := range latest {
			if x > 0 && x+len([]rune(part)) > m.width {
				break
			}
			x = 2 + c.put(x, y, m.width-x, plain, part)
		}
		y++
	}
	return y
}

// progress says how far a run has come.
func progress(s *monitor.Snapshot) (parts []string) {
	switch {
	case s.Updates > 0:
		parts = append(parts, fmt.Sprintf("%d/%d", s.Update, s.Updates), fmt.Sprintf("%d %%", 100*min(s.Update, s.Updates)/s.Updates))
	case s.Update > 0:
		parts = append(parts, fmt.Sprintf("update %d", s.Update))
	}
	if left := float64(s.Left); left >= 0 {
		parts = append(parts, clock(left)+" left")
	}
	if !s.Began.IsZero() {
		end := s.At
		if s.State.Over() && s.Seen.After(s.Began) {
			end = s.Seen
		}
		if took := end.Sub(s.Began).Seconds(); took >= 0 {
			parts = append(parts, clock(took)+" since it began")
		}
	}
	return parts
}

// about describes the run.
func about(s *monitor.Snapshot) string {
	i := &s.Info
	var parts []string
	add := func(known bool, format string, args ...any) {
		if known {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	name := i.System
	if i.Preset != "" {
		name += " / " + i.Preset
	}
	add(name != "", "%s", name)
	add(i.Parameters > 0, "%s parameters", size.Count(float64(i.Parameters)))
	add(i.Precision != "", "%s", i.Precision)
	add(i.Device != "", "%s", i.Device)
	add(i.Threads > 0 && !i.Card, "%s", size.Of(i.Threads, "thread"))
	add(i.BatchSize > 0, "%d x %d rows an update", i.Accumulation, i.BatchSize)
	add(i.Host != "", "on %s", i.Host)
	return strings.Join(parts, "  ")
}

func known(n monitor.Number) bool { return !math.IsNaN(float64(n)) }

// latest returns the newest figures, the most telling first.
func latest(s *monitor.Snapshot) (parts []string) {
	l := &s.Latest
	add := func(ok bool, format string, args ...any) {
		if ok {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	if s.Update > s.Info.From || len(s.Evaluations) > 0 {
		add(known(l.Loss) || l.Loss != 0 && len(s.Series) > 0, "loss %s", figure(float64(l.Loss), 0))
	}
	if text := evaluation(s); text != "" {
		parts = append(parts, text)
	}
	unit := s.Info.Unit
	if unit == "" {
		unit = "units"
	}
	add(known(l.Rate), "%s %s/s", size.Count(float64(l.Rate)), unit)
	add(known(l.Share), "%.0f %% of the %s", 100*float64(l.Share), peakName(s))
	add(known(l.LR), "lr %s", figure(float64(l.LR), 0))
	add(known(l.GradNorm), "norm %s", figure(float64(l.GradNorm), 0))
	add(known(l.Scale), "scale %g", float64(l.Scale))
	add(l.Seconds > 0, "%s an update", duration(float64(l.Seconds)))
	add(l.Skipped > 0, "%d skipped", l.Skipped)
	return parts
}

func peakName(s *monitor.Snapshot) string {
	if s.Info.Plan.PeakName != "" {
		return s.Info.Plan.PeakName
	}
	return "peak"
}

// evaluation shows the last evaluation, and the best if it is another one.
func evaluation(s *monitor.Snapshot) string {
	n := len(s.Evaluations)
	if n == 0 {
		return ""
	}
	metric := s.Info.Monitored
	if _, ok := s.Evaluations[n-1].Metrics[metric]; !ok {
		metric = "eval_loss"
	}
	v, ok := s.Evaluations[n-1].Metrics[metric]
	if !ok {
		return ""
	}
	text := fmt.Sprintf("%s %s", strings.ReplaceAll(metric, "_", " "), figure(float64(v), 0))
	for i := n - 1; i >= 0; i-- {
		if e := s.Evaluations[i]; e.Best {
			if i < n-1 {
				text += fmt.Sprintf(" (best %s at %d)", figure(float64(e.Metrics[metric]), 0), e.Update)
			}
			break
		}
	}
	return text
}

// drawNotices shows alerts and advice above the log, in a fifth of the remaining space.
func (m Model) drawNotices(c *canvas, s *shown, top, bottom int) int {
	room := (bottom - top) / 5
	if m.opts.Once {
		room = (bottom - top) / 2
	}
	if m.height < 16 {
		room = min(1, bottom-top-4)
	}
	lines := notices(s.Snapshot, m.width)
	if room <= 0 || len(lines) == 0 {
		return bottom
	}
	if len(lines) > room {
		lines = lines[:room]
		lines[room-1].more = true
	}
	for i, l := range lines {
		text := l.text
		if l.more && !m.opts.Once {
			text = fmt.Sprintf("%-*s", m.width, text)
			c.put(0, bottom-len(lines)+i, m.width-9, l.style, text)
			c.put(m.width-8, bottom-len(lines)+i, 8, faint, "(m more)")
			continue
		}
		c.put(0, bottom-len(lines)+i, m.width, l.style, text)
	}
	return bottom - len(lines)
}

// notice is a line of an alert, or of advice.
type notice struct {
	text  string
	style style
	more  bool // there are more
}

// notices returns alerts and advice as lines.
func notices(s *monitor.Snapshot, width int) (lines []notice) {
	add := func(look style, text string) {
		for _, l := range wrap(text, width-1, 2) {
			lines = append(lines, notice{l, look, false})
		}
	}
	for _, a := range s.Alerts {
		look := plain
		switch a.Level {
		case monitor.LevelError:
			look = bad
		case monitor.LevelWarning:
			look = warn
		}
		text := "! " + a.Text
		if a.Do != "" {
			text += " → " + a.Do
		}
		add(look, text)
	}
	for _, a := range s.Advice {
		add(plain, "advice: "+a.Do+" ("+a.Because+")")
	}
	for _, p := range s.Problems {
		add(warn, "! "+p)
	}
	return lines
}

// drawLog shows the last lines of the log at the bottom.
func (m Model) drawLog(c *canvas, s *shown, bottom int) int {
	if m.height < 16 {
		return bottom
	}
	lines := s.Log
	if n := max(2, m.height/8); len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	for i, l := range lines {
		m.drawLogLine(c, bottom-len(lines)+i, &l)
	}
	return bottom - len(lines)
}

func (m Model) drawLogLine(c *canvas, y int, l *monitor.LogLine) {
	look := plain
	switch l.Level {
	case monitor.LevelError:
		look = bad
	case monitor.LevelWarning:
		look = warn
	}
	at := "      - "
	if l.Update > 0 {
		at = fmt.Sprintf("%7d ", l.Update)
	}
	x := c.put(0, y, 12, faint, at)
	c.put(x, y, c.w-x, look, l.Text)
}

// drawMessages shows alerts, advice and the log on the whole screen.
func (m Model) drawMessages(c *canvas, s *shown, a area) {
	lines := notices(s.Snapshot, a.w)
	if len(lines) == 0 {
		lines = []notice{{"no alerts and no advice so far", faint, false}}
	}
	lines = lines[min(m.scroll, len(lines)-1):]
	lines = lines[:min(len(lines), max(1, a.h*2/3))]
	for i, l := range lines {
		c.put(a.x, a.y+i, a.w, l.style, l.text)
	}
	room := a.h - len(lines) - 1
	log := s.Log[max(0, len(s.Log)-max(0, room)):]
	for i := range log {
		m.drawLogLine(c, a.y+len(lines)+1+i, &log[i])
	}
}

// drawPlots shows as many panels as fit, the chosen one among them.
func (m Model) drawPlots(c *canvas, a area) {
	plots := m.plots()
	if a.h < 3 {
		return
	}
	if len(plots) == 0 {
		text := "no update yet"
		if at := m.at(); at.State == monitor.Empty {
			text = "nothing was written yet"
		}
		c.put(a.x+1, a.y+a.h/2, a.w-1, faint, text)
		return
	}
	chosen := min(m.panel, len(plots)-1)
	if m.full {
		plots[chosen].draw(c, a)
		return
	}
	columns, rows := grid(len(plots), a.w, a.h)
	plots[chosen].focus = columns*rows > 1 && !m.opts.Once
	first := 0
	if chosen >= columns*rows {
		first = (chosen/columns - rows + 1) * columns
	}
	for i := first; i < min(len(plots), first+columns*rows); i++ {
		x, y := (i-first)%columns, (i-first)/columns
		left, top := a.x+x*a.w/columns, a.y+y*a.h/rows
		right, low := a.x+(x+1)*a.w/columns, a.y+(y+1)*a.h/rows
		if x < columns-1 {
			right--
		}
		plots[i].draw(c, area{left, top, right - left, low - top})
	}
}

// grid returns how many columns and rows of panels there are: all of them if there is
// room, in an aspect ratio in which a curve is easy to read.
func grid(n, w, h int) (columns, rows int) {
	columns, rows = clamp(w/panelWidth, 1, 5), clamp(h/panelHeight, 1, 5)
	const ratio = 5 // of columns to rows of characters
	best := math.Inf(1)
	for r := 1; r <= rows; r++ {
		k := (n + r - 1) / r
		if k > columns || k*(r-1) >= n {
			continue
		}
		if off := math.Abs(math.Log(float64(w) / float64(k) / (float64(h) / float64(r)) / ratio)); off < best {
			best, columns, rows = off, k, r
		}
	}
	return columns, rows
}

func clamp(x, low, high int) int { return min(max(x, low), high) }

// drawKeys draws the last line: what keys do, and what was selected with them.
func (m Model) drawKeys(c *canvas, y int) {
	var on []string
	add := func(is bool, text string) {
		if is {
			on = append(on, text)
		}
	}
	add(m.paused, "paused")
	add(m.log, "log scale")
	add(m.smooth > 0, fmt.Sprintf("smooth %g", smoothings[m.smooth]))
	add(m.zoom > 0, fmt.Sprintf("last 1/%d", 1<<m.zoom))
	x := 0
	if len(on) > 0 {
		x = 1 + c.put(0, y, m.width, warn, "["+strings.Join(on, ", ")+"]")
	}
	leave := m.opts.Leave
	if leave == "" {
		leave = "quit"
	}
	keys := []string{"q " + leave, "? help", "tab panel", "l log", "s smooth", "+- zoom", "space pause", "m messages", "enter full"}
	if len(m.shown) > 1 {
		keys = append(keys[:2], append([]string{"←→ run"}, keys[2:]...)...)
	}
	for _, k := range keys {
		if x+len(k) > m.width {
			break
		}
		key, does, _ := strings.Cut(k, " ")
		x = c.put(x, y, m.width-x, strong, key)
		x = 2 + c.put(x, y, m.width-x, faint, " "+does)
	}
}

// drawHelp explains what keys do and what the screen shows.
func (m Model) drawHelp(c *canvas) {
	leave := m.opts.Leave
	if leave == "" {
		leave = "quit; the run continues"
	}
	lines := [][2]string{
		{"q, ctrl+c", leave}, {"tab, ↑ ↓", "the next or previous panel"}, {"←  →, 1 to 9", "another run or phase"}, {"enter", "the panel alone, and back"},
		{"m", "alerts, advice and the log, and back"}, {"l", "logarithmic scale of losses, norms and rates"}, {"s", "smoothing: off, 0.9, 0.98"},
		{"+  -  0", "zoom to the last part of the run, and back"}, {"space", "pause and resume"}, {"r", "redraw the screen"}, {"?, esc", "close this page"},
		{"", ""},
		{"time", "of the last updates: computing, waiting for data,"}, {"", "saving, evaluating"}, {"memory", "in use; the mark is the plan"},
		{"o", "points of evaluations; a gap is a value that is not finite"},
	}
	if m.height < len(lines)+1 {
		lines = lines[:11]
	}
	for i, l := range lines {
		c.put(0, i, 14, strong, l[0])
		c.put(14, i, m.width-14, plain, l[1])
	}
}
