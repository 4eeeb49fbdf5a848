//go:build !linux

package gemm

// hugePages returns n bytes.
func hugePages(n int) []byte { return make([]byte, n) }
