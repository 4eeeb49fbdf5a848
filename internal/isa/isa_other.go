//go:build !amd64 && !arm64

package isa

// supported: there is assembly for amd64 and arm64 only.
func supported() map[Level]bool { return nil }
