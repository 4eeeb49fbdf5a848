//go:build unix

package regular

import "syscall"

// noWait makes opening a pipe return at once.
const noWait = syscall.O_NONBLOCK
