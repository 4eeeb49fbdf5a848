package plan

import (
	"cmp"
	"fmt"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/internal/size"
)

// Target is what a program is planned for: a card, or the processor of a host.
type Target struct {
	Name string       `json:"name"`
	Card *device.Card `json:"-"` // nil: the CPU
	// Lower gives the card's kernels; nil: they are not known.
	Lower engine.Lower `json:"-"`
	// Traits are what programs for it are compiled with.
	Traits engine.Traits `json:"-"`
	// Memory is what there is, in bytes: the total that the card reports, or what
	// the process can take of main memory. 0: unknown.
	Memory int64 `json:"memory_bytes"`
	// Taken is how much of a card's memory other processes use now, which is not in
	// Memory. TakenBy names those that can be seen.
	Taken   int64  `json:"memory_taken_bytes,omitempty"`
	TakenBy string `json:"memory_taken_by,omitempty"`
	// Budget is the most that the run may plan (hardware.memory_budget); 0: Memory.
	Budget int64 `json:"memory_budget_bytes,omitempty"`
	// HostMemory is what the process can take of the main memory of a card's machine, in bytes;
	// 0: unknown. HostAssumed says that it is [ColabMemory], for want of anything known.
	HostMemory  int64 `json:"host_memory_bytes,omitempty"`
	HostAssumed bool  `json:"host_memory_assumed,omitempty"`
	// Rates are the CPU's; a card's are in its table.
	Rates Rates `json:"-"`
}

// ColabMemory is the main memory of the machines that Colab lends for nothing. A plan for a card of
// another machine counts on that much and no more, unless hardware.host_memory says how much there is.
const ColabMemory = 12 << 30

// hostText is the bound of main memory as messages print it.
func (t Target) hostText() string {
	if t.HostAssumed {
		return fmt.Sprintf("%s are assumed, as machines of Colab have them (hardware.host_memory says what there is)", size.Bytes(t.HostMemory))
	}
	return fmt.Sprintf("there are %s", size.Bytes(t.HostMemory))
}

// OnCard is a card, with what gives its kernels (engine/backend.Lower).
func OnCard(c *device.Card, lower engine.Lower) Target {
	return Target{Name: c.Name, Card: c, Lower: lower, Traits: engine.CUDA, Memory: c.Usable}
}

// OnHost is the processor of h with the rates that [Calibrate] measured. Its
// memory is what the process can still take now.
func OnHost(h device.Host, r Rates) Target {
	m := h.Memory.Free()
	if m == 0 {
		m = h.Memory.Usable()
	}
	return Target{Name: "CPU", Traits: engine.CPU, Memory: m, Rates: r}
}

// Speed is the target's in precision p.
func (t Target) Speed(p device.Precision) Speed {
	if t.Card != nil {
		return CardSpeed(t.Card, p, t.Lower)
	}
	return t.Rates.In(p)
}

// Capacity is what a plan may need in all, 0 when nothing is known.
func (t Target) Capacity() int64 {
	if t.Budget > 0 && (t.Memory == 0 || t.Budget < t.Memory) {
		return t.Budget
	}
	return t.Memory
}

// capacityText is the capacity as messages print it: which limit it is, and its size.
func (t Target) capacityText() string {
	if t.Capacity() == t.Memory {
		if t.Taken > 0 {
			return fmt.Sprintf("%s has %s left for this process, others use %s of its %s (%s)", t.Name, size.Bytes(t.Memory), size.Bytes(t.Taken), size.Bytes(t.Memory+t.Taken), cmp.Or(t.TakenBy, "`nvidia-smi` may name them"))
		}
		return fmt.Sprintf("%s has %s", t.Name, size.Bytes(t.Memory))
	}
	return fmt.Sprintf("hardware.memory_budget is %s", size.Bytes(t.Budget))
}
