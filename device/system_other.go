//go:build !linux && !darwin

package device

// allowedProcessors: no affinity known for this system.
func allowedProcessors() []int { return nil }

// systemMemory is unknown here.
func systemMemory() int64 { return 0 }

// availableMemory, systemRelease and askSystem likewise.
func availableMemory() int64 { return 0 }
func systemRelease() string  { return "" }

var askSystem func() usage
