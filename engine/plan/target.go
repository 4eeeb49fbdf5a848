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
	Card *device.Card `json:"-"` // nil for the CPU
	// Lower returns the card's kernels; nil if they are unknown.
	Lower engine.Lowering `json:"-"`
	// Traits are used to compile programs for the target.
	Traits engine.Traits `json:"-"`
	// Memory is the available memory in bytes: the total that the card reports, or the main memory that the
	// process can use. 0 if unknown.
	Memory int64 `json:"memory_bytes"`
	// Taken is the card memory in use by other processes, which is not in Memory. TakenBy names those that
	// are visible.
	Taken   int64  `json:"memory_taken_bytes,omitempty"`
	TakenBy string `json:"memory_taken_by,omitempty"`
	// Budget is the most that the run may plan (hardware.memory_budget); 0 means Memory.
	Budget int64 `json:"memory_budget_bytes,omitempty"`
	// HostMemory is the main memory of a card's machine that the process can use, in bytes; 0 if unknown.
	// HostAssumed says that it is [ColabMemory], because nothing is known.
	HostMemory  int64 `json:"host_memory_bytes,omitempty"`
	HostAssumed bool  `json:"host_memory_assumed,omitempty"`
	// Rates are those of the CPU; a card's are in its table.
	Rates Rates `json:"-"`
}

// ColabMemory is the main memory of the machines that Colab lends for free. A plan for a card in another
// machine assumes only this much, unless hardware.host_memory says how much there is.
const ColabMemory = 12 << 30

// hostText returns the limit of main memory as messages print it.
func (t Target) hostText() string {
	if t.HostAssumed {
		return fmt.Sprintf("%s are assumed, as machines of Colab have them (hardware.host_memory says what there is)", size.Bytes(t.HostMemory))
	}
	return fmt.Sprintf("there are %s", size.Bytes(t.HostMemory))
}

// OnCard returns a card as a target. lower returns its kernels (engine/backend.Lower).
func OnCard(c *device.Card, lower engine.Lowering) Target {
	return Target{Name: c.Name, Card: c, Lower: lower, Traits: engine.CUDA, Memory: c.Usable}
}

// OnHost returns the processor of h as a target, with the rates that [Calibrate] measured. Its memory is what
// the process can still take now.
func OnHost(h device.Host, r Rates) Target {
	m := h.Memory.Free()
	if m == 0 {
		m = h.Memory.Usable()
	}
	return Target{Name: "CPU", Traits: engine.CPU, Memory: m, Rates: r}
}

// Speed returns the speed of the target in precision p.
func (t Target) Speed(p device.Precision) Speed {
	if t.Card != nil {
		return CardSpeed(t.Card, p, t.Lower)
	}
	return t.Rates.In(p)
}

// Capacity returns the most that a plan may need; 0 if unknown.
func (t Target) Capacity() int64 {
	if t.Budget > 0 && (t.Memory == 0 || t.Budget < t.Memory) {
		return t.Budget
	}
	return t.Memory
}

// capacityText returns the capacity as messages print it: which limit it is, and its size.
func (t Target) capacityText() string {
	if t.Capacity() == t.Memory {
		if t.Taken > 0 {
			return fmt.Sprintf("%s has %s left for this process, others use %s of its %s (%s)", t.Name, size.Bytes(t.Memory), size.Bytes(t.Taken), size.Bytes(t.Memory+t.Taken), cmp.Or(t.TakenBy, "`nvidia-smi` may name them"))
		}
		return fmt.Sprintf("%s has %s", t.Name, size.Bytes(t.Memory))
	}
	return fmt.Sprintf("hardware.memory_budget is %s", size.Bytes(t.Budget))
}
