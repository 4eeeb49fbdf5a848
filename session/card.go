package session

import (
	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/device/nvml"
)

// CardUse is how a run used its card. Values that the card does not report are zero.
type CardUse struct {
	// Busy is the mean share of time in which a kernel was running, in percent.
	Busy float64 `json:"busy_percent"`
	// Memory is the peak memory in use by all processes, in bytes.
	Memory int64 `json:"memory_peak_bytes"`
	// Watts is the mean power draw, Cap the power limit, and Joules the energy of the session's updates.
	Watts  float64 `json:"watts"`
	Cap    float64 `json:"watts_cap"`
	Joules float64 `json:"joules"`
	// Celsius is the highest temperature, and MHz the mean clock of the multiprocessors.
	Celsius int     `json:"celsius_peak"`
	MHz     float64 `json:"mhz"`
	// Slowed is the share of time in which clocks were held down, in percent, and SlowedBy the cause.
	Slowed   float64 `json:"slowed_percent"`
	SlowedBy string  `json:"slowed_by,omitempty"`
}

// cardUse sums up samples of how a card is used.
type cardUse struct {
	last    nvml.Sample
	samples int
	slowed  int
	why     nvml.Throttle
	busy    device.Range
	watts   device.Range
	mhz     device.Range
	use     CardUse
}

// add adds a sample. The first samples are taken before the card is warm, and count like any other.
func (m *cardUse) add(s nvml.Sample) {
	m.last = s
	m.samples++
	if s.Busy >= 0 {
		m.busy.Add(float64(s.Busy))
	}
	if s.Watts >= 0 {
		m.watts.Add(s.Watts)
	}
	if s.SM >= 0 {
		m.mhz.Add(float64(s.SM))
	}
	if s.Throttle&nvml.Slow != 0 {
		m.slowed++
		m.why |= s.Throttle & nvml.Slow
	}
	m.use.Memory = max(m.use.Memory, s.Used)
	m.use.Celsius = max(m.use.Celsius, s.Celsius)
	m.use.Cap = max(m.use.Cap, s.Cap)
}

// sum returns the use of the card over the given seconds of updates, or nil if there are no samples.
func (m *cardUse) sum(seconds float64) *CardUse {
	if m == nil || m.samples == 0 {
		return nil
	}
	u := m.use
	u.Busy, u.Watts, u.MHz = m.busy.Mean, m.watts.Mean, m.mhz.Mean
	u.Joules = u.Watts * seconds
	u.Slowed, u.SlowedBy = 100*float64(m.slowed)/float64(m.samples), m.why.String()
	return &u
}
