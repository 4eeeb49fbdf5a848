//go:build !linux

package cli

import "syscall"

// diesWithParent does nothing, because this system cannot kill a process with its parent; the lifeline ends
// it.
func diesWithParent() *syscall.SysProcAttr { return nil }

// startOn starts a process on any processors, because it is not known here which of them are close to which
// memory.
func startOn(_ []int, start func() error) error { return start() }
