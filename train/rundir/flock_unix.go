//go:build unix

package rundir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Flock takes or tries to take an advisory lock that ends with the descriptor,
// that is with the process at the latest. busy means somebody else holds it;
// unsupported that this file system has no such locks.
func Flock(f *os.File, shared bool) (busy, unsupported bool, err error) {
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

// alive reports whether a process of this machine exists.
func alive(pid int) bool {
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}
