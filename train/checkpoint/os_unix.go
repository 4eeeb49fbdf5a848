//go:build unix

package checkpoint

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// freeBytes is what an ordinary user may still write to path's file system.
func freeBytes(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	blocks, size := uint64(st.Bavail), uint64(st.Bsize) //nolint:unconvert // the types differ between systems
	if size != 0 && blocks > math.MaxInt64/size {
		return math.MaxInt64, nil
	}
	return int64(blocks * size), nil
}
