//go:build unix

package filemap

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// mapAll maps the first size bytes of f, at least one.
func mapAll(f *os.File, size int64) (raw []byte, unmap func() error, err error) {
	if size > math.MaxInt {
		return nil, nil, fmt.Errorf("%d bytes do not fit this machine's address space", size)
	}
	raw, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	return raw, func() error { return unix.Munmap(raw) }, nil
}
