//go:build amd64 || arm64

package cpu

// pause wastes a few cycles of a spin loop.
//
//go:noescape
func pause()
