package monitor

import (
	"math"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/device/nvml"
)

// SamplesFile holds the samples of a run, one JSON object per line.
const SamplesFile = "samples.jsonl"

// Sample is a look at a run's process, its machine and its card, or the mean of several
// looks.
type Sample struct {
	// Time of the look, in seconds since 1970; for several looks, that of the last, and
	// From that of the first. Looks is their number; 0 means 1.
	Time  float64 `json:"time"`
	From  float64 `json:"from,omitempty"`
	Looks int     `json:"looks,omitempty"`

	Update int64 `json:"update"` // updates that were done
	Doing  Doing `json:"doing,omitempty"`

	ProcessCPU float64 `json:"process_cpu_percent"` // of one processor: 200 is two processors busy
	MachineCPU float64 `json:"machine_cpu_percent"` // of all processors
	Load       float64 `json:"load,omitempty"`

	// Bytes. For several looks, those of the process, of the control group and of the
	// card are the maximum seen, MemoryAvailable is the minimum.
	RSS             int64 `json:"rss_bytes"`
	PeakRSS         int64 `json:"rss_peak_bytes"`
	MemoryTotal     int64 `json:"memory_total_bytes"`
	MemoryAvailable int64 `json:"memory_available_bytes"`
	CgroupUsed      int64 `json:"cgroup_used_bytes,omitempty"`
	CgroupLimit     int64 `json:"cgroup_limit_bytes,omitempty"`

	GPU *GPUSample `json:"gpu,omitempty"` // nil: no card, or it cannot be read
}

// GPUSample is a look at a card. Figures that it does not report are nil.
type GPUSample struct {
	Busy       *float64 `json:"busy_percent,omitempty"`        // of the time in which a kernel ran
	MemoryBusy *float64 `json:"memory_busy_percent,omitempty"` // in which memory was read or written
	Used       *float64 `json:"memory_used_bytes,omitempty"`   // by all processes
	Total      *float64 `json:"memory_total_bytes,omitempty"`
	Celsius    *float64 `json:"celsius,omitempty"`
	Watts      *float64 `json:"watts,omitempty"`
	Cap        *float64 `json:"watts_cap,omitempty"`
	SM         *float64 `json:"sm_mhz,omitempty"`
	MaxSM      *float64 `json:"sm_mhz_max,omitempty"`
	Memory     *float64 `json:"memory_mhz,omitempty"`
	// Throttle is all reasons for lower clocks that were seen. PowerCapped and Slowed are
	// the shares of the looks that showed the power cap, and any other reason that costs
	// speed.
	Throttle    nvml.Throttle `json:"throttle,omitempty"`
	PowerCapped float64       `json:"power_capped,omitempty"`
	Slowed      float64       `json:"slowed,omitempty"`
}

// Doing is an activity of a run other than training.
type Doing string

// The activities.
const (
	Training   Doing = ""
	Evaluating Doing = "evaluating"
	Saving     Doing = "saving" // in the background, while training goes on
	Finishing  Doing = "finishing"
)

// NewSample makes a sample from a machine's.
func NewSample(m device.Sample) Sample {
	return Sample{
		Time: seconds(m.At), ProcessCPU: math.Round(10*m.ProcessCPU) / 10, MachineCPU: math.Round(10*m.MachineCPU) / 10, Load: m.Load,
		RSS: m.RSS, PeakRSS: m.PeakRSS, MemoryTotal: m.MemoryTotal, MemoryAvailable: m.MemoryAvailable,
		CgroupUsed: m.CgroupUsed, CgroupLimit: m.CgroupLimit,
	}
}

// NewGPUSample makes a sample from a card's.
func NewGPUSample(s nvml.Sample) *GPUSample {
	g := &GPUSample{
		Busy: known(s.Busy), MemoryBusy: known(s.MemoryBusy), Used: known(s.Used), Total: known(s.Total), Celsius: known(s.Celsius),
		Watts: known(s.Watts), Cap: known(s.Cap), SM: known(s.SM), MaxSM: known(s.MaxSM), Memory: known(s.Memory), Throttle: s.Throttle,
	}
	if s.Throttle&nvml.PowerCap != 0 {
		g.PowerCapped = 1
	}
	if s.Throttle&(nvml.Slow&^nvml.PowerCap) != 0 {
		g.Slowed = 1
	}
	return g
}

// known converts a figure of NVML, in which negative means not reported.
func known[T int | int64 | float64](x T) *float64 {
	if x < 0 {
		return nil
	}
	f := float64(x)
	return &f
}

// seconds returns a time in seconds since 1970, to the millisecond.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1e3 }

// lastSecond is the end of the year 9999, in seconds since 1970: anything later is not a
// time.
const lastSecond = 253402300799

// at converts seconds since 1970 to a time; the zero time for 0 and for anything that is
// not a time.
func at(seconds float64) time.Time {
	if !(0 < seconds && seconds <= lastSecond) {
		return time.Time{}
	}
	return time.UnixMilli(int64(seconds * 1e3)).UTC()
}

// sound reports whether a sample is one that a machine can produce.
func (s *Sample) sound() bool {
	for _, t := range []float64{s.Time, s.From} {
		if t < 0 || t > lastSecond {
			return false
		}
	}
	least := min(s.RSS, s.PeakRSS, s.MemoryTotal, s.MemoryAvailable, s.CgroupUsed, s.CgroupLimit, s.Update, int64(s.Looks))
	return least >= 0 && s.Update <= maxUpdate && s.Looks <= 1<<30 && min(s.ProcessCPU, s.MachineCPU, s.Load) >= 0
}

func (s *Sample) looks() int { return max(1, s.Looks) }

// begin returns the time of the first look.
func (s *Sample) begin() float64 {
	if s.From != 0 {
		return s.From
	}
	return s.Time
}

// merge combines two consecutive samples into one.
func merge(a, b Sample) Sample {
	out := b
	out.From, out.Looks = a.begin(), a.looks()+b.looks()
	mean := mixer(a.looks(), b.looks())
	out.ProcessCPU, out.MachineCPU, out.Load = mean(a.ProcessCPU, b.ProcessCPU), mean(a.MachineCPU, b.MachineCPU), mean(a.Load, b.Load)
	out.RSS, out.PeakRSS, out.CgroupUsed = max(a.RSS, b.RSS), max(a.PeakRSS, b.PeakRSS), max(a.CgroupUsed, b.CgroupUsed)
	out.MemoryAvailable = min(a.MemoryAvailable, b.MemoryAvailable)
	if a.Doing != b.Doing {
		out.Doing = Training
	}
	switch {
	case a.GPU == nil:
	case b.GPU == nil:
		out.GPU = a.GPU
	default:
		out.GPU = mergeGPU(a.GPU, b.GPU, mean)
	}
	return out
}

func mergeGPU(a, b *GPUSample, mean func(a, b float64) float64) *GPUSample {
	both := func(a, b *float64, how func(a, b float64) float64) *float64 {
		switch {
		case a == nil:
			return b
		case b == nil:
			return a
		}
		f := how(*a, *b)
		return &f
	}
	most := func(a, b float64) float64 { return max(a, b) }
	return &GPUSample{
		Busy: both(a.Busy, b.Busy, mean), MemoryBusy: both(a.MemoryBusy, b.MemoryBusy, mean), Used: both(a.Used, b.Used, most),
		Total: both(a.Total, b.Total, most), Celsius: both(a.Celsius, b.Celsius, most), Watts: both(a.Watts, b.Watts, mean),
		Cap: both(a.Cap, b.Cap, most), SM: both(a.SM, b.SM, mean), MaxSM: both(a.MaxSM, b.MaxSM, most), Memory: both(a.Memory, b.Memory, mean),
		Throttle: a.Throttle | b.Throttle, PowerCapped: mean(a.PowerCapped, b.PowerCapped), Slowed: mean(a.Slowed, b.Slowed),
	}
}

// mixer returns a function that averages figures, weighted by their looks.
func mixer(a, b int) func(x, y float64) float64 {
	n := float64(a + b)
	return func(x, y float64) float64 { return math.Round(1e3*(x*float64(a)+y*float64(b))/n) / 1e3 }
}
