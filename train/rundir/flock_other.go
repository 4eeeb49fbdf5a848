//go:build !unix

package rundir

import "os"

// Flock is not available here; the lock file's text decides.
func Flock(*os.File, bool) (busy, unsupported bool, err error) { return false, true, nil }

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	return p.Release() == nil
}
