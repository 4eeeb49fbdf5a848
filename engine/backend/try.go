package backend

import (
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/device/nvml"
	"github.com/snug-ml/snug/engine/cuda"
	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/internal/size"
)

// Tried is a card of this machine, and what came of trying it.
type Tried struct {
	Device     string       `json:"device"` // as in hardware.device
	Name       string       `json:"name"`
	UUID       string       `json:"uuid"`
	Capability string       `json:"capability"`
	SMs        int          `json:"multiprocessors"`
	Memory     int64        `json:"memory_bytes"`
	Trials     []cuda.Trial `json:"trials"`
	// NVML is NVIDIA's management library, which a run does without.
	NVML cuda.Trial `json:"nvml"`
}

// Failed names what runs would fail at.
func (t *Tried) Failed() (names []string) {
	for _, x := range t.Trials {
		if x.Problem != "" && !slices.Contains(names, x.What) {
			names = append(names, x.What)
		}
	}
	return names
}

// Try tries all cards of this machine, one after the other; an error is why there are none to try.
func Try() ([]Tried, error) {
	d, cards, err := Options{}.cards()
	if err != nil {
		return nil, err
	}
	var list []Tried
	for _, c := range cards {
		list = append(list, Tried{
			Device: fmt.Sprintf("cuda:%d", c.Index), Name: c.Name, UUID: c.UUID, Capability: fmt.Sprintf("%d.%d", c.Major, c.Minor), SMs: c.SMs, Memory: c.Memory,
			Trials: try(d, c), NVML: tryMonitor(c),
		})
	}
	return list, nil
}

func try(d driver.Driver, c driver.Card) []cuda.Trial {
	t := cuda.Trial{What: "context"}
	if err := cuda.Supports(c); err != nil {
		t.Problem = err.Error() + ": use another card, or compute on the CPU (hardware.device: cpu)"
		return []cuda.Trial{t}
	}
	ctx, err := d.Open(c.Index)
	if err != nil {
		t.Problem = occupied(c, err).Error()
		return []cuda.Trial{t}
	}
	free, total, err := ctx.Memory()
	if t.Found = fmt.Sprintf("opened, %s of %s free", size.Bytes(free), size.Bytes(total)); err != nil {
		t.Found, t.Problem, t.Lost = "", err.Error(), cuda.Lost(err)
	}
	list := []cuda.Trial{t}
	if !t.Lost {
		list = append(list, cuda.Try(ctx)...)
	}
	lost := slices.ContainsFunc(list, func(x cuda.Trial) bool { return x.Lost })
	if err := ctx.Close(); err != nil && !lost { // which every call would say again
		list = append(list, cuda.Trial{What: "context", Problem: err.Error()})
	}
	return list
}

// tryMonitor looks at a card through NVIDIA's management library.
func tryMonitor(c driver.Card) cuda.Trial {
	const without = "; a run does without its figures"
	t := cuda.Trial{What: "NVML"}
	l, err := openMonitor()
	if err != nil {
		t.Problem = err.Error() + ": install libnvidia-ml of the driver's version (in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility)" + without
		return t
	}
	s, ok := l.Sample(c.UUID)
	if !ok {
		t.Problem = fmt.Sprintf("it does not know %s: check `nvidia-smi -L`; in a container, give it the whole card", c.UUID) + without
		return t
	}
	var said, silent []string
	say := func(name string, known bool, format string, args ...any) {
		if known {
			said = append(said, fmt.Sprintf(format, args...))
		} else {
			silent = append(silent, name)
		}
	}
	say("utilization", s.Busy >= 0, "busy %d %%", s.Busy)
	say("memory", s.Used >= 0 && s.Total >= 0, "%s of %s used", size.Bytes(s.Used), size.Bytes(s.Total))
	say("power", s.Watts >= 0 && s.Cap >= 0, "%.0f of %.0f W", s.Watts, s.Cap)
	say("temperature", s.Celsius >= 0, "%d °C", s.Celsius)
	say("clocks", s.SM >= 0 && s.MaxSM >= 0, "%d of %d MHz", s.SM, s.MaxSM)
	switch {
	case s.Throttle&nvml.Slow != 0:
		said = append(said, fmt.Sprintf("held down by %v", s.Throttle&nvml.Slow))
	case s.SM >= 0:
		said = append(said, "not held down")
	}
	if len(silent) > 0 {
		said = append(said, "not reported: "+strings.Join(silent, ", "))
	}
	t.Found = strings.Join(said, ", ")
	return t
}
