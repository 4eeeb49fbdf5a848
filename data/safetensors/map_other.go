//go:build !unix

package safetensors

import (
	"io"
	"os"
)

// mapFile reads the file: systems without mmap lose the zero copy, not the
// function.
func mapFile(f *os.File, size int64) (raw []byte, mapped bool, err error) {
	raw, err = io.ReadAll(io.LimitReader(f, size))
	return raw, false, err
}

func unmap([]byte) error { return nil }
