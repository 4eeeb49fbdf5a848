//go:build !amd64 && !arm64

package simd

// detect reports portable: there is assembly for amd64 and arm64 only.
func detect() []Level { return []Level{Portable} }
