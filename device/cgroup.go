package device

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// cgroup lists the folders whose limits bind this process, innermost first: its own control group
// and all its ancestors, in version 2 (one tree) or version 1 (one tree per controller).
type cgroup struct {
	unified      []string
	cpu, memory1 []string
}

// findCgroup reads /proc/self/cgroup. Inside a container the path may not be visible
// under /sys/fs/cgroup; the mount's own root is then the container's group and comes
// last in each list anyway.
func findCgroup(root string) cgroup {
	var c cgroup
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return c
	}
	mount := filepath.Join(root, "sys/fs/cgroup")
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		controllers, at := strings.Split(parts[1], ","), path.Clean("/"+parts[2])
		if parts[0] == "0" && parts[1] == "" {
			c.unified = upwards(mount, at)
			continue
		}
		for _, name := range controllers {
			// The folder has the controllers' joint name, with a link for each single one.
			switch name {
			case "cpu":
				c.cpu = upwards(filepath.Join(mount, name), at)
			case "memory":
				c.memory1 = upwards(filepath.Join(mount, name), at)
			}
		}
	}
	return c
}

// upwards lists mount/at and every folder above it up to mount.
func upwards(mount, at string) []string {
	var dirs []string
	for ; at != "/"; at = path.Dir(at) {
		dirs = append(dirs, filepath.Join(mount, at))
	}
	return append(dirs, mount)
}

// cpuQuota returns the tightest CPU limit in processors; 0 means none.
func (c cgroup) cpuQuota() float64 {
	quota := math.Inf(1)
	for _, dir := range c.unified {
		text, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
		if err != nil {
			continue
		}
		// "max 100000" or "150000 100000": microseconds in each period.
		fields := strings.Fields(string(text))
		if len(fields) == 2 {
			limit, err1 := strconv.ParseFloat(fields[0], 64)
			period, err2 := strconv.ParseFloat(fields[1], 64)
			if err1 == nil && err2 == nil && limit > 0 && period > 0 {
				quota = min(quota, limit/period)
			}
		}
	}
	for _, dir := range c.cpu {
		limit, ok1 := readInt(filepath.Join(dir, "cpu.cfs_quota_us"))
		period, ok2 := readInt(filepath.Join(dir, "cpu.cfs_period_us"))
		if ok1 && ok2 && limit > 0 && period > 0 {
			quota = min(quota, float64(limit)/float64(period))
		}
	}
	if math.IsInf(quota, 1) {
		return 0
	}
	return quota
}

// memory returns the tightest memory limit and what is charged against it, in bytes; 0
// means none. File pages that the kernel drops under pressure (inactive_file) do not
// count as used. alone says that all of it is this process's.
func (c cgroup) memory() (limit, used int64, alone bool) {
	for _, g := range c.memoryFiles() {
		n, ok := readInt(g.limit)
		if !ok || n <= 0 || n >= noLimit || limit > 0 && n >= limit {
			continue
		}
		limit = n
		used, _ = readInt(g.usage)
		if text, err := os.ReadFile(g.stat); err == nil {
			used = max(used-field(text, "inactive_file "), 0)
		}
		alone = onlyMember(filepath.Dir(g.limit))
	}
	return limit, used, alone
}

// onlyMember reports whether this process is the only one in a group and in those below it.
func onlyMember(dir string) bool {
	members, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(members)) != strconv.Itoa(os.Getpid()) {
		return false
	}
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, os.DirEntry.IsDir)
}

// noLimit: version 1 expresses "no limit" as the largest number of whole pages.
const noLimit = 1 << 60

type memoryFiles struct{ limit, usage, stat string }

func (c cgroup) memoryFiles() []memoryFiles {
	var files []memoryFiles
	for _, d := range c.unified {
		files = append(files, memoryFiles{filepath.Join(d, "memory.max"), filepath.Join(d, "memory.current"), filepath.Join(d, "memory.stat")})
	}
	for _, d := range c.memory1 {
		files = append(files, memoryFiles{
			filepath.Join(d, "memory.limit_in_bytes"), filepath.Join(d, "memory.usage_in_bytes"), filepath.Join(d, "memory.stat"),
		})
	}
	return files
}
