//go:build !unix

package filemap

import (
	"io"
	"os"
)

// Release does nothing: the bytes are in memory.
func Release([]byte) {}

// mapAll reads the file: systems without mmap lose only the zero copy.
func mapAll(f *os.File, size int64) (raw []byte, unmap func() error, err error) {
	raw, err = io.ReadAll(io.LimitReader(f, size))
	return raw, func() error { return nil }, err
}
