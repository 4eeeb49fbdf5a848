//go:build !arm64 || (!linux && !darwin)

package armcpu

func hasBF16() bool { return false }
