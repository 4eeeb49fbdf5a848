package device

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Host is the part of this machine that this process may use.
type Host struct {
	OS     string `json:"os"` // this and the next are Go's names
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"` // release; "" if unknown
	Go     string `json:"go"`     // version of the Go runtime
	CPU    CPU    `json:"cpu"`
	Memory Memory `json:"memory"`
}

// DetectHost examines the machine. What cannot be determined is left zero.
func DetectHost() Host { return detectHost("/") }

// detectHost reads /proc and /sys below root.
func detectHost(root string) Host {
	h := Host{OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()}
	if release, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease")); err == nil {
		h.Kernel = strings.TrimSpace(string(release))
	} else {
		h.Kernel = systemRelease()
	}
	limits := findCgroup(root)
	h.CPU = detectCPU(root, limits.cpuQuota())
	h.Memory = detectMemory(root, limits)
	return h
}

// Machine identifies this machine: all processes on it get the same text, even in containers.
func Machine() string {
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return strings.TrimSpace(string(id))
	}
	name, _ := os.Hostname() // without one, every process returns the same
	return name
}

// Shared returns the host as it appears to one of n processes that share it: with its part
// of the threads and of the memory. If each was bound to its own processors, as mpirun may
// do, these are already its part.
func (h Host) Shared(n int) Host {
	if n <= 1 {
		return h
	}
	if h.CPU.Allowed*n > h.CPU.Logical {
		h.CPU.Threads = max(1, h.CPU.Threads/n)
	}
	for _, m := range []*int64{&h.Memory.Total, &h.Memory.Available, &h.Memory.Limit, &h.Memory.Used} {
		*m /= int64(n)
	}
	return h
}

// Memory is main memory in bytes; 0 means unknown, or no limit for the cgroup figures.
type Memory struct {
	Total     int64 `json:"total_bytes"`     // of the machine
	Available int64 `json:"available_bytes"` // of the machine, without swapping (the kernel's estimate)
	Limit     int64 `json:"limit_bytes"`     // of the tightest cgroup that this process is in
	Used      int64 `json:"used_bytes"`      // charged to that cgroup, without what the kernel can drop at once
	Own       int64 `json:"own_bytes"`       // of this process alone, neither in Available nor in what is left of Limit
}

// Usable returns the most that this process can ever have: Total or the cgroup's limit.
func (m Memory) Usable() int64 {
	if m.Limit > 0 && (m.Total == 0 || m.Limit < m.Total) {
		return m.Limit
	}
	return m.Total
}

// Free returns what this process can have now: what it has, and what it can still take.
func (m Memory) Free() int64 {
	if m.Available == 0 && m.Limit == 0 {
		return 0
	}
	left := m.Available
	if rest := m.Limit - m.Used; m.Limit > 0 && (left == 0 || rest < left) {
		left = max(rest, 0)
	}
	return min(left+m.Own, m.Usable())
}

func detectMemory(root string, limits cgroup) Memory {
	var m Memory
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err == nil {
		m.Total = kilobytes(text, "MemTotal:")
		m.Available = kilobytes(text, "MemAvailable:")
	} else {
		m.Total, m.Available = systemMemory(), availableMemory()
	}
	if text, err := os.ReadFile(filepath.Join(root, "proc/self/status")); err == nil {
		m.Own = kilobytes(text, "RssAnon:")
	}
	var alone bool
	m.Limit, m.Used, alone = limits.memory()
	if m.Total > 0 && m.Limit >= m.Total {
		m.Limit, m.Used, alone = 0, 0, false
	}
	if alone { // page tables and other memory of the kernel too
		m.Own = max(m.Own, m.Used)
	}
	return m
}

// kilobytes finds "KEY 123 kB" in a /proc text and returns bytes; 0 if it is missing. It
// allocates nothing.
func kilobytes(text []byte, key string) int64 { return field(text, key) * 1024 }

// field finds "KEY   123" at the start of a line and returns the number; 0 if it is missing.
func field(text []byte, key string) int64 {
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		if len(line) > len(key) && string(line[:len(key)]) == key {
			n, _ := number(line[len(key):])
			return n
		}
	}
	return 0
}

// number skips blanks, reads a decimal number and returns the text after it.
func number(text []byte) (n int64, rest []byte) {
	i := 0
	for i < len(text) && (text[i] == ' ' || text[i] == '\t') {
		i++
	}
	for i < len(text) && '0' <= text[i] && text[i] <= '9' {
		n = n*10 + int64(text[i]-'0')
		i++
	}
	return n, text[i:]
}

// readInt reads a file with one number; ok is false if it contains something else ("max") or
// cannot be read.
func readInt(path string) (n int64, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}
