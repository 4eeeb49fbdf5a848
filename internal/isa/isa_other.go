//go:build !amd64 && !arm64

package isa

// supported: there is assembly only for amd64 and arm64.
func supported() map[Level]bool { return nil }
