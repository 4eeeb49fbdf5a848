package cli

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// diesWithParent has a process killed when the thread that starts it ends, also where it is stopped
// and would not notice.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// startOn starts a process on processors of its own. The goroutine is locked to its thread, whose
// processors the process inherits.
func startOn(processors []int, start func() error) error {
	var own, was unix.CPUSet
	for _, p := range processors {
		own.Set(p)
	}
	if err := unix.SchedGetaffinity(0, &was); err != nil {
		return err
	}
	if err := unix.SchedSetaffinity(0, &own); err != nil {
		return err
	}
	return errors.Join(start(), unix.SchedSetaffinity(0, &was))
}
