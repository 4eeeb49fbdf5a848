// Package nvml reads the state of a card from NVIDIA's management library: how busy, how
// hot and how throttled it is. [Open] returns the library that came with the driver;
// tests substitute their own figures. A figure that a card or a container does not report
// is absent, never an error.
package nvml

import (
	"fmt"
	"strings"
)

// Sample is one look at a card. A figure that is not reported is negative, Throttle zero.
type Sample struct {
	// Busy is the share of the time in which a kernel ran, MemoryBusy the share in which
	// memory was read or written, in percent of the last second or less.
	Busy, MemoryBusy int
	// Used and Total are bytes of memory, of all processes.
	Used, Total int64
	// Celsius is the temperature.
	Celsius int
	// Watts is the power drawn, Cap what the card may draw.
	Watts, Cap float64
	// Joules is the energy drawn since the driver was loaded.
	Joules float64
	// SM and Memory are clocks in MHz, MaxSM the maximum of the first.
	SM, MaxSM, Memory int
	// Throttle is why clocks are lower than they could be.
	Throttle Throttle
}

// Unknown is a sample of a card that reports nothing.
var Unknown = Sample{Busy: -1, MemoryBusy: -1, Used: -1, Total: -1, Celsius: -1, Watts: -1, Cap: -1, Joules: -1, SM: -1, MaxSM: -1, Memory: -1}

// Throttle is a set of reasons for lower clocks.
type Throttle uint64

// The reasons.
const (
	Idle            Throttle = 1 << iota // nothing runs
	AppClocks                            // clocks were set by a user
	PowerCap                             // the card is at its power limit
	HardwareSlow                         // heat, power or the board, by hardware
	SyncBoost                            // it follows other cards
	Heat                                 // by the driver
	HardwareHeat                         // by hardware
	PowerBrake                           // by the machine's power supply
	DisplayClocks                        // a display requires them
	BoardLimit                           // by the board's operating limits
	Reliability                          // by NVIDIA's limits for a long life
	throttleReasons = iota
)

var throttleNames = [throttleReasons]string{"idle", "application clocks", "power cap", "hardware slowdown", "sync boost", "heat", "heat (hardware)", "power brake", "display", "board limit", "reliability"}

// Slow are the reasons that cost a run speed.
const Slow = PowerCap | HardwareSlow | Heat | HardwareHeat | PowerBrake | BoardLimit | Reliability

// String names the reasons, separated by commas.
func (t Throttle) String() string {
	var names []string
	for i, name := range throttleNames {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// String prints a sample as in a progress line, without figures that are not reported.
func (s Sample) String() string {
	var parts []string
	add := func(known bool, format string, args ...any) {
		if known {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(s.Busy >= 0, "busy %d%%", s.Busy)
	switch {
	case s.Watts >= 0 && s.Cap > 0:
		add(true, "%.0f/%.0f W", s.Watts, s.Cap)
	case s.Watts >= 0:
		add(true, "%.0f W", s.Watts)
	}
	add(s.Celsius >= 0, "%d °C", s.Celsius)
	add(s.SM >= 0, "%d MHz", s.SM)
	add(s.Throttle&Slow != 0, "slowed by %v", s.Throttle&Slow)
	return strings.Join(parts, " ")
}

// Process is a process that computes on a card.
type Process struct {
	PID  int
	Used int64 // bytes of the card's memory; -1: not reported
}

// Library reads cards by their UUID.
type Library interface {
	// Sample looks at a card now; ok is false if the library does not know it.
	Sample(uuid string) (s Sample, ok bool)
	// Processes lists those that compute on a card and are visible to this process:
	// containers hide others.
	Processes(uuid string) []Process
}
