//go:build !linux

package cli

import "syscall"

// diesWithParent is for systems that end no process with another: the lifeline does.
func diesWithParent() *syscall.SysProcAttr { return nil }

// startOn starts a process; which processors are near which memory is not known here.
func startOn(_ []int, start func() error) error { return start() }
