//go:build unix

package durable

import (
	"errors"
	"syscall"
)

// alive reports whether a process of this host may exist.
func alive(pid int) bool {
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
