// Package device knows what programs run on: a table of GPUs with the figures that a
// plan needs, the host's CPU, memory and limits as this process really sees them
// (affinity, cgroup), the NVIDIA cards and libraries of this machine (found without
// loading any), the precision each can multiply, and live samples of the process.
//
// It promises: a figure is either a specification, a measurement with its source, or
// marked as an estimate; a limit that cannot be read is reported as unknown (zero),
// never guessed; nothing here needs cgo or a GPU.
package device

// Chip is what a precision is chosen for: a *Card or a *CPU.
type Chip interface {
	// String is the name to print.
	String() string
	// automatic is the fastest precision that trains well, and why.
	automatic() (p Precision, reason string)
	// check describes what requesting p means on this chip; err is why it cannot be done.
	check(p Precision) (reason string, err error)
}

const (
	mib = 1 << 20
	gib = 1 << 30
)
