//go:build (amd64 || arm64) && !nocuda

package mpi

import (
	"syscall"
	"unsafe"
)

// signals is how many signals Linux has, real-time ones included.
const signals = 64

// action is the kernel's struct sigaction, of at most 32 bytes; its contents do not matter
// here.
type action [8]uint64

// keepSignals restores the signal handlers that f replaces. Libraries take over fault signals
// when they are loaded or initialized (UCX, used by Debian's MPICH, turns every nil dereference
// into a crash where Go would make an error of it), and some take SIGHUP and SIGUSR1, without
// requesting the alternate stack that handlers need in a Go program.
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

// sigaction is the system call. It fails only for SIGKILL and SIGSTOP, which cannot be handled.
func sigaction(s int, set, get *action) {
	const maskBytes = 8
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(get)), maskBytes, 0, 0)
}
