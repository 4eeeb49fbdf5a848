package terminal

import (
	"fmt"
	"strings"

	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/monitor"
)

// Line shows a run in one line, for logs and dumb terminals: in ASCII, except for names
// with other characters.
func Line(s *monitor.Snapshot) string {
	parts := []string{s.Name}
	if s.State != "" {
		state := string(s.State)
		if s.Doing != "" {
			state += ", " + string(s.Doing)
		}
		if s.Why != "" && s.State != monitor.Done {
			state += " (" + s.Why + ")"
		}
		parts = append(parts, state)
	}
	switch {
	case s.Updates > 0:
		parts = append(parts, fmt.Sprintf("%d/%d", s.Update, s.Updates))
	case s.Update > 0:
		parts = append(parts, fmt.Sprintf("update %d", s.Update))
	}
	parts = append(parts, latest(s)...)
	if m := &s.Memory; m.Used > 0 {
		text := "mem " + size.Bytes(m.Used).String()
		if m.Planned > 0 {
			text += " (" + size.Bytes(m.Planned).String() + " planned)"
		}
		parts = append(parts, text)
	}
	if x := s.Sample; x != nil && !s.State.Over() {
		if x.GPU != nil {
			parts = append(parts, "card "+cardGauge(x.GPU).text)
		}
		parts = append(parts, fmt.Sprintf("machine %.0f %%", x.MachineCPU))
	}
	if left := float64(s.Left); left >= 0 {
		parts = append(parts, clock(left)+" left")
	}
	return spelling.Replace(strings.Join(parts, "  "))
}
