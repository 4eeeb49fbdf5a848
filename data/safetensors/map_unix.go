//go:build unix

package safetensors

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int64) (raw []byte, mapped bool, err error) {
	if size > math.MaxInt {
		return nil, false, fmt.Errorf("%d bytes do not fit this machine's address space", size)
	}
	raw, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	return raw, err == nil, err
}

func unmap(raw []byte) error { return unix.Munmap(raw) }
