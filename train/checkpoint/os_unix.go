//go:build unix

package checkpoint

import (
	"errors"
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

// flock takes or tries to take an advisory lock that ends with the descriptor,
// that is with the process at the latest. busy means somebody else holds it;
// unsupported that this file system has no such locks.
func flock(f *os.File, shared bool) (busy, unsupported bool, err error) {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	for {
		err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err != unix.EINTR {
			break
		}
	}
	switch {
	case err == nil:
		return false, false, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, false, nil
	case errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOLCK):
		return false, true, nil
	}
	return false, false, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
}

// alive tells whether a process of this machine exists.
func alive(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}
