//go:build !unix

package offheap

// Allocate returns n bytes of zeros.
func Allocate(n int64) ([]byte, error) { return make([]byte, n), nil }

// Release leaves memory to the garbage collector.
func Release([]byte) error { return nil }
