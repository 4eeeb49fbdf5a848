package monitor

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/device/nvml"
)

// Machine is this machine, watched without a run.
type Machine struct {
	sampler    *device.Sampler
	card       func() (nvml.Sample, bool) // nil: no card can be read
	name       string
	processors int
	tiers      tiers
}

// NewMachine watches this machine and its first card, if NVML reports one; it allocates
// nothing on it.
func NewMachine() *Machine {
	h := device.DetectHost()
	m := &Machine{sampler: device.NewSampler(), name: h.CPU.String(), processors: h.CPU.Logical}
	if cards := device.DiscoverNVIDIA().Cards; len(cards) > 0 {
		if l, err := nvml.Open(); err == nil {
			uuid := cards[0].UUID
			if _, ok := l.Sample(uuid); ok {
				m.card = func() (nvml.Sample, bool) { return l.Sample(uuid) }
				m.name = cards[0].Model
			}
		}
	}
	m.Look()
	return m
}

// Look takes a sample.
func (m *Machine) Look() {
	s := NewSample(m.sampler.Sample())
	s.ProcessCPU, s.RSS, s.PeakRSS = 0, 0, 0 // these would be the monitor's own
	if m.card != nil {
		if c, ok := m.card(); ok {
			s.GPU = NewGPUSample(c)
		}
	}
	m.tiers.add(s)
}

// Snapshot returns what was seen so far, with alerts and advice that need no run.
func (m *Machine) Snapshot(now time.Time, v View) *Snapshot {
	none := Number(math.NaN())
	r := &Run{machine: m.tiers.all()}
	last := r.machine[len(r.machine)-1]
	s := &Snapshot{Name: "this machine", At: now.UTC(), Left: none, Began: at(r.machine[0].begin()), Sample: &last, Series: []Series{}}
	s.Info = Info{Device: Printable(m.name), Card: m.card != nil, Processors: m.processors}
	s.Latest = Latest{none, none, none, none, none, none, none, none, none, 0}
	s.Machine = machineOnly(r.machineSeries(v, false), last.MemoryTotal)
	limit := last.MemoryTotal
	s.Memory = Memory{Used: last.MemoryTotal - last.MemoryAvailable, Limit: limit}
	if last.CgroupLimit > 0 && last.CgroupLimit < limit {
		s.Memory = Memory{Used: last.CgroupUsed, Limit: last.CgroupLimit}
	}
	if g := last.GPU; g != nil && g.Used != nil && g.Total != nil {
		s.Memory = Memory{Used: int64(*g.Used), Limit: int64(*g.Total), Card: true}
	}
	s.Memory.Peak = s.Memory.Used
	s.Advice = r.machineAdvice(m.processors)
	s.Alerts = r.slowed()
	return s
}

// machineOnly returns the series except those of a process, with the memory in use
// instead of the available memory.
func machineOnly(list []Series, total int64) []Series {
	list = slices.DeleteFunc(list, func(x Series) bool { return x.Name == "process_cpu" })
	for i := range list {
		if list[i].Name == "memory_available" {
			list[i].Name = "memory_used"
			for k := range list[i].Y {
				list[i].Y[k] = Number(total) - list[i].Y[k]
			}
		}
	}
	return list
}

// machineAdvice returns advice for training on a machine, from its figures.
func (r *Run) machineAdvice(processors int) []device.Advice {
	var busy device.Range
	looks := 0
	for i := len(r.machine) - 1; i >= 0 && looks < machineLooks; i-- {
		busy.AddMean(r.machine[i].MachineCPU, r.machine[i].looks())
		looks += r.machine[i].looks()
	}
	last := &r.machine[len(r.machine)-1]
	return device.AdviseMachine(looks, busy.Mean, processors, last.MemoryAvailable, last.MemoryTotal)
}

// machineLooks is how many samples advice about a machine is based on: half a minute.
const machineLooks = 30

// LookAtMachine watches this machine for most of a second and gives advice about it.
func LookAtMachine(ctx context.Context) []device.Advice {
	m := NewMachine()
	defer m.Close() // files in /proc, only read
	m.tiers = tiers{}
	for range 4 {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
		m.Look()
	}
	return m.Snapshot(time.Now(), View{}).Advice
}

// Close closes the files that the machine is read from.
func (m *Machine) Close() error { return m.sampler.Close() }
