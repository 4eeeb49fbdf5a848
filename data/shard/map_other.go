//go:build !unix

package shard

import "os"

// mapFile reads the file: where there is no mmap, a copy has to do.
func mapFile(name string) (b []byte, unmap func() error, err error) {
	b, err = os.ReadFile(name)
	return b, func() error { return nil }, err
}
