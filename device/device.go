// Package device describes what programs run on: a table of GPUs with the figures that a
// plan needs, the host's CPU, memory and limits as they really apply to this process
// (affinity, cgroup), the NVIDIA cards and libraries of this machine (found without
// loading any), the precisions that each can multiply, and live samples of the process.
//
// It promises: a figure is either a specification, a measurement with its source, or
// marked as an estimate; a limit that cannot be read is reported as unknown (zero),
// never guessed; nothing here needs cgo or a GPU.
package device

// Chip is hardware that a precision is chosen for: a *Card or a *CPU.
type Chip interface {
	// String is the name for printing.
	String() string
	// automatic returns the fastest precision that trains well, and why.
	automatic() (p Precision, reason string)
	// check describes what requesting p means on this chip; err says why it is
	// impossible.
	check(p Precision) (reason string, err error)
}

const (
	mib = 1 << 20
	gib = 1 << 30
)
