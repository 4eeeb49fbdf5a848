//go:build unix

package shard

import (
	"fmt"
	"syscall"

	"github.com/snug-ml/snug/internal/regular"
)

// mapFile maps a whole file read-only. The bytes stay valid until unmap, even
// when the file is renamed or removed meanwhile.
func mapFile(name string) (b []byte, unmap func() error, err error) {
	f, err := regular.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // the mapping outlives the descriptor
	st, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	size := st.Size()
	if !st.Mode().IsRegular() || size == 0 || size != int64(int(size)) {
		return nil, nil, fmt.Errorf("%s: %d bytes of %s cannot be mapped", name, size, st.Mode().Type())
	}
	b, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: mmap: %w", name, err)
	}
	return b, func() error { return syscall.Munmap(b) }, nil
}
