//go:build !unix

package checkpoint

import (
	"math"
	"os"
)

func freeBytes(string) (int64, error) { return math.MaxInt64, nil }

// flock is not available here; the lock file's text decides.
func flock(*os.File, bool) (busy, unsupported bool, err error) { return false, true, nil }

func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	return p.Release() == nil
}
