package device

import (
	"encoding/binary"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allowedProcessors: macOS has no affinity masks.
func allowedProcessors() []int { return nil }

// systemMemory returns the machine's memory in bytes; 0 if unknown.
func systemMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}

// systemRelease returns the kernel's release; empty if unknown.
func systemRelease() string {
	release, err := unix.Sysctl("kern.osrelease")
	if err != nil {
		return ""
	}
	return release
}

// availableMemory returns what could be given to a process: free pages and those of
// files, which can be dropped. It is an estimate; 0 if unknown.
func availableMemory() int64 {
	pages := int64(0)
	for _, name := range []string{"vm.page_free_count", "vm.page_pageable_external_count"} {
		n, err := unix.SysctlUint32(name)
		if err != nil {
			return 0
		}
		pages += int64(n)
	}
	return pages * int64(os.Getpagesize())
}

// askSystem asks getrusage, sysctl and proc_info, which macOS has instead of /proc. None
// of them reports how other processes use the processors.
var askSystem = func() usage {
	u := usage{rss: residentSize(), total: systemMemory(), available: availableMemory(), load: loadAverage()}
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) == nil {
		u.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano())
		u.peak = r.Maxrss
	}
	return u
}

// loadAverage returns the load of the last minute: three fixed-point numbers, then the
// scale.
func loadAverage() float64 {
	raw, err := unix.SysctlRaw("vm.loadavg")
	if err != nil || len(raw) < 24 {
		return 0
	}
	one := binary.LittleEndian.Uint64(raw[16:])
	if one == 0 {
		return 0
	}
	return float64(binary.LittleEndian.Uint32(raw)) / float64(one)
}

// residentSize returns the memory of this process: the second number of proc_taskinfo in
// <sys/proc_info.h>. 0 if the system answers otherwise.
func residentSize() int64 {
	const pidInfo, taskInfo = 2, 4
	var info [12]uint64 // 96 bytes
	n, _, err := unix.Syscall6(unix.SYS_PROC_INFO, pidInfo, uintptr(os.Getpid()), taskInfo, 0, uintptr(unsafe.Pointer(&info)), unsafe.Sizeof(info))
	if err != 0 || n != unsafe.Sizeof(info) {
		return 0
	}
	return int64(info[1])
}
