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

// systemMemory is the machine's memory in bytes; 0 if unknown.
func systemMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}

// systemRelease is that of the kernel; empty if unknown.
func systemRelease() string {
	release, err := unix.Sysctl("kern.osrelease")
	if err != nil {
		return ""
	}
	return release
}

// availableMemory is what could be given to a process: pages that are free and those of
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

// askSystem asks getrusage, sysctl and proc_info, which macOS has in place of /proc. What
// other processes use of the processors is known to none of them.
var askSystem = func() usage {
	u := usage{rss: residentSize(), total: systemMemory(), available: availableMemory(), load: loadAverage()}
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) == nil {
		u.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano())
		u.peak = r.Maxrss
	}
	return u
}

// loadAverage is that of the last minute: three numbers of fixed point, then what 1 is.
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

// residentSize is the memory of this process: the second number of proc_taskinfo, as
// <sys/proc_info.h> has it. 0 if the system answers otherwise.
func residentSize() int64 {
	const pidInfo, taskInfo = 2, 4
	var info [12]uint64 // 96 bytes
	n, _, err := unix.Syscall6(unix.SYS_PROC_INFO, pidInfo, uintptr(os.Getpid()), taskInfo, 0, uintptr(unsafe.Pointer(&info)), unsafe.Sizeof(info))
	if err != 0 || n != unsafe.Sizeof(info) {
		return 0
	}
	return int64(info[1])
}
