package dist

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// self returns this process; the zero value if /proc cannot be read.
func self() process {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return process{}
	}
	p := process{Machine: strings.TrimSpace(string(boot)) + " " + space, ID: os.Getpid()}
	_, p.Start = statOf(p.ID)
	return p
}

// statOf returns the parent of a process and its start time; zeros if it is not found.
func statOf(id int) (parent int, start uint64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
	if err != nil {
		return 0, 0
	}
	// The name, in parentheses, may contain any character. Fields 4 and 22 of the line follow
	// it.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return 0, 0
	}
	parent, _ = strconv.Atoi(string(f[1]))
	start, _ = strconv.ParseUint(string(f[19]), 10, 64)
	return parent, start
}

// kill kills the process, if it is still the same one and runs this program.
func (p process) kill() {
	if p.Start == 0 {
		return
	}
	own, err := os.Readlink("/proc/self/exe")
	if other, e := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.ID)); err != nil || e != nil || own != other {
		return // other ranks' claims about themselves kill nothing else
	}
	fd, err := unix.PidfdOpen(p.ID, 0) // from here on its number cannot be reused
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if _, start := statOf(p.ID); start == p.Start {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended, or belong to someone else
	}
}

// proxies are the kernel's names of what MPICH and Intel MPI start on each machine.
var proxies = []string{"hydra_pmi_proxy", "hydra_bstrap_pr"}

// launcherOf identifies what started this process and the others on this machine: its nearest
// ancestor that is a launcher's proxy or that lacks this process's rank, given as NAME=value.
// Anything in between is a script that wraps each process.
func launcherOf(rank string) string {
	id := os.Getppid()
	for {
		parent, start := statOf(id)
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", id))
		given, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", id)) // another user's cannot be read
		if err != nil || parent == 0 || slices.Contains(proxies, strings.TrimSpace(string(name))) || !slices.Contains(strings.Split(string(given), "\x00"), rank) {
			return fmt.Sprint("process ", id, " ", start)
		}
		id = parent
	}
}
