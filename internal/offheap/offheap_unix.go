//go:build unix

package offheap

import (
	"fmt"
	"syscall"
)

// Allocate maps n bytes of zeros outside the garbage collector's heap: pages
// become resident when they are first touched.
func Allocate(n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	m, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w", n, err)
	}
	adviseHuge(m)
	return m, nil
}

// Release unmaps memory of [Allocate].
func Release(m []byte) error {
	if m == nil {
		return nil
	}
	return syscall.Munmap(m)
}
