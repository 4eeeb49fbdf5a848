//go:build !amd64

package simd

// detect reports portable: there is assembly for amd64 only.
func detect() Level { return Portable }
