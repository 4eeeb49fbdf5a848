package cli

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// diesWithParent makes the system kill a process when the thread that started it ends, even if the process is
// stopped and would not notice.
func diesWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// startOn starts a process on its own processors. It locks the goroutine to its thread, because the process
// inherits that thread's processors.
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
