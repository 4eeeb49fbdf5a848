package device

import "golang.org/x/sys/unix"

// allowedProcessors lists this process's affinity mask; nil if the kernel does not report it.
func allowedProcessors() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	all := make([]int, 0, set.Count())
	for i := 0; len(all) < cap(all); i++ {
		if set.IsSet(i) {
			all = append(all, i)
		}
	}
	return all
}

// What follows is for systems without /proc.

func systemMemory() int64    { return 0 }
func availableMemory() int64 { return 0 }
func systemRelease() string  { return "" }

var askSystem func() usage
