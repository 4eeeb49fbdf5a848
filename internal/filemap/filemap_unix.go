//go:build unix

package filemap

import (
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Release frees the memory that holds part of what [Open] returned: if read again, it comes
// from the file again.
func Release(part []byte) {
	if len(part) == 0 {
		return
	}
	// Only whole pages: anything else in the first and last is read again too.
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	before := at % page
	pages := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(part)), -int(before))), uintptr(len(part))+before)
	_ = unix.Madvise(pages, unix.MADV_DONTNEED) // if refused, the memory is kept until the end of the map
}

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
