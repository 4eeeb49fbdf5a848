//go:build (amd64 || arm64) && !nocuda

package mpi

import (
	"syscall"
	"unsafe"
)

// signals is how many there are on Linux, real-time ones included.
const signals = 64

// action is the kernel's struct sigaction, of at most 32 bytes; what is in it does not matter
// here.
type action [8]uint64

// keepSignals leaves the handlers of signals as they are, whatever f does to them. Libraries
// take those of faults when they are loaded or begun (UCX, below Debian's MPICH, makes a crash of
// every nil pointer that Go would make an error of) and some take SIGHUP and SIGUSR1, without
// asking for the stack that handlers need in a Go program.
func keepSignals(f func()) {
	var before [signals + 1]action
	for s := 1; s <= signals; s++ {
		sigaction(s, nil, &before[s])
	}
	f()
	for s := 1; s <= signals; s++ {
		var now action
		sigaction(s, nil, &now)
		if now != before[s] {
			sigaction(s, &before[s], nil)
		}
	}
}

// sigaction is the system call. It fails for SIGKILL and SIGSTOP alone, which have no handlers.
func sigaction(s int, set, get *action) {
	const maskBytes = 8
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), maskBytes, 0, 0)
}
