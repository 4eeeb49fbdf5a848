package device

import "golang.org/x/sys/unix"

// allowedProcessors: macOS has no affinity masks.
func allowedProcessors() []int { return nil }

// systemMemory is the machine's memory in bytes; 0 if unknown.
func systemMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}
