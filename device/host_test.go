package device

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/snug-ml/snug/internal/isa"
)

// fakeRoot writes files below a new folder that replaces "/".
func fakeRoot(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const meminfo = "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:   12000000 kB\n"

func TestMemoryLimits(t *testing.T) {
	for _, c := range []struct {
		name         string
		files        map[string]string
		limit, used  int64
		usable, free int64
		quota        float64
	}{
		{
			name:   "no cgroup",
			files:  map[string]string{"proc/meminfo": meminfo},
			usable: 16000000 << 10, free: 12000000 << 10,
		},
		{
			name: "version 2, the parent is tighter",
			files: map[string]string{
				"proc/meminfo":                      meminfo,
				"proc/self/cgroup":                  "0::/jobs/one\n",
				"sys/fs/cgroup/jobs/one/memory.max": "max\n", "sys/fs/cgroup/jobs/one/cpu.max": "max 100000\n",
				"sys/fs/cgroup/jobs/memory.max": "1073741824\n", "sys/fs/cgroup/jobs/memory.current": "500000000\n",
				"sys/fs/cgroup/jobs/memory.stat": "anon 1\ninactive_file 100000000\nactive_file 7\n",
				"sys/fs/cgroup/jobs/cpu.max":     "150000 100000\n",
			},
			limit: 1 << 30, used: 400000000, usable: 1 << 30, free: 1<<30 - 400000000, quota: 1.5,
		},
		{
			name: "version 2 in a container: the path is not visible",
			files: map[string]string{
				"proc/meminfo":             meminfo,
				"proc/self/cgroup":         "0::/../../kubepods/pod1\n",
				"sys/fs/cgroup/memory.max": "2147483648\n", "sys/fs/cgroup/memory.current": "1000\n", "sys/fs/cgroup/cpu.max": "50000 100000\n",
			},
			limit: 2 << 30, used: 1000, usable: 2 << 30, free: 2<<30 - 1000, quota: 0.5,
		},
		{
			name: "what the process has is part of what it can have",
			files: map[string]string{
				"proc/meminfo":             meminfo,
				"proc/self/cgroup":         "0::/\n",
				"proc/self/status":         "RssAnon:\t   10000 kB\nRssFile:\t   30000 kB\n",
				"sys/fs/cgroup/memory.max": "2147483648\n", "sys/fs/cgroup/memory.current": "20480000\n",
			},
			limit: 2 << 30, used: 20_480_000, usable: 2 << 30, free: 2<<30 - 20_480_000 + 10_240_000,
		},
		{
			name: "alone in its group",
			files: map[string]string{
				"proc/meminfo":               meminfo,
				"proc/self/cgroup":           "0::/a\n",
				"proc/self/status":           "RssAnon:\t   10000 kB\n",
				"sys/fs/cgroup/a/memory.max": "2147483648\n", "sys/fs/cgroup/a/memory.current": "20480000\n", "sys/fs/cgroup/a/memory.stat": "inactive_file 480000\n",
				"sys/fs/cgroup/a/cgroup.procs": strconv.Itoa(os.Getpid()) + "\n",
			},
			limit: 2 << 30, used: 20_000_000, usable: 2 << 30, free: 2 << 30,
		},
		{
			name: "another process below",
			files: map[string]string{
				"proc/meminfo":               meminfo,
				"proc/self/cgroup":           "0::/a\n",
				"proc/self/status":           "RssAnon:\t   10000 kB\n",
				"sys/fs/cgroup/a/memory.max": "2147483648\n", "sys/fs/cgroup/a/memory.current": "20480000\n",
				"sys/fs/cgroup/a/cgroup.procs": strconv.Itoa(os.Getpid()) + "\n", "sys/fs/cgroup/a/b/cgroup.procs": "1\n",
			},
			limit: 2 << 30, used: 20_480_000, usable: 2 << 30, free: 2<<30 - 20_480_000 + 10_240_000,
		},
		{
			name: "version 1",
			files: map[string]string{
				"proc/meminfo":     meminfo,
				"proc/self/cgroup": "4:memory:/docker/a\n2:cpu,cpuacct:/docker/a\n0::/\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes":          "9223372036854771712\n",
				"sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes": "4294967296\n", "sys/fs/cgroup/memory/docker/a/memory.usage_in_bytes": "4096\n",
				"sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us": "300000\n", "sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us": "100000\n",
				"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
			},
			limit: 4 << 30, used: 4096, usable: 4 << 30, free: 4<<30 - 4096, quota: 3,
		},
		{
			name: "a limit above the machine is none",
			files: map[string]string{
				"proc/meminfo":             meminfo,
				"proc/self/cgroup":         "0::/\n",
				"sys/fs/cgroup/memory.max": "99999999999999\n",
			},
			usable: 16000000 << 10, free: 12000000 << 10,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fakeRoot(t, c.files)
			limits := findCgroup(root)
			m := detectMemory(root, limits)
			if m.Limit != c.limit || m.Used != c.used || m.Usable() != c.usable || m.Free() != c.free {
				t.Errorf("got %+v, usable %d, free %d; want limit %d, used %d, usable %d, free %d",
					m, m.Usable(), m.Free(), c.limit, c.used, c.usable, c.free)
			}
			if q := limits.cpuQuota(); q != c.quota {
				t.Errorf("quota %g, want %g", q, c.quota)
			}
		})
	}
}

func TestDetectCPUFromFiles(t *testing.T) {
	files := map[string]string{"sys/devices/system/cpu/online": "0-7\n"}
	for _, n := range allowedProcessors() {
		// Each pair of processors shares a core.
		files["sys/devices/system/cpu/cpu"+strconv.Itoa(n)+"/topology/thread_siblings_list"] = strconv.Itoa(n&^1) + "-" + strconv.Itoa(n|1) + "\n"
	}
	files["sys/devices/system/cpu/cpu0/cache/index0/level"] = "1\n"
	files["sys/devices/system/cpu/cpu0/cache/index0/type"] = "Data\n"
	files["sys/devices/system/cpu/cpu0/cache/index0/size"] = "48K\n"
	files["sys/devices/system/cpu/cpu0/cache/index1/level"] = "1\n"
	files["sys/devices/system/cpu/cpu0/cache/index1/type"] = "Instruction\n"
	files["sys/devices/system/cpu/cpu0/cache/index1/size"] = "32K\n"
	files["sys/devices/system/cpu/cpu0/cache/index2/level"] = "3\n"
	files["sys/devices/system/cpu/cpu0/cache/index2/type"] = "Unified\n"
	files["sys/devices/system/cpu/cpu0/cache/index2/size"] = "32M\n"
	c := detectCPU(fakeRoot(t, files), 0)
	if c.Logical < 8 {
		t.Errorf("logical %d, want the 8 that are online", c.Logical)
	}
	if c.L1D != 48<<10 || c.L2 != 0 || c.L3 != 32<<20 {
		t.Errorf("caches %d %d %d", c.L1D, c.L2, c.L3)
	}
	if runtime.GOOS == "linux" && (c.Cores >= c.Allowed && c.Allowed > 1 || c.Threads != c.Cores) {
		t.Errorf("%d allowed, %d cores, %d threads: two processors share a core", c.Allowed, c.Cores, c.Threads)
	}
	if c := detectCPU(fakeRoot(t, files), 0.5); c.Threads != 1 {
		t.Errorf("half a processor of quota: %d threads", c.Threads)
	}
}

func TestDetectHost(t *testing.T) {
	h := DetectHost()
	if h.CPU.Allowed < 1 || h.CPU.Threads < 1 || h.CPU.Threads > h.CPU.Allowed || h.CPU.Cores > h.CPU.Allowed || h.CPU.Logical < h.CPU.Allowed {
		t.Errorf("processors do not add up: %+v", h.CPU)
	}
	if runtime.GOOS == "linux" && (h.Memory.Total < 64<<20 || h.Memory.Free() > h.Memory.Usable() || h.Kernel == "") {
		t.Errorf("memory or kernel do not add up: %+v", h)
	}
	if level, err := h.CPU.ISA.Level(); err != nil || level != isa.Best() {
		t.Errorf("kernels %s, which are %v (%v), but the best are %v", h.CPU.ISA, level, err, isa.Best())
	}
}

func TestParseList(t *testing.T) {
	for s, want := range map[string][]int{"0": {0}, "0-2,5": {0, 1, 2, 5}, "": nil, "a": nil, "3-1": nil, "-1": nil, "0-9999999999": nil} {
		if got := parseList(s); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

func TestShared(t *testing.T) {
	h := Host{CPU: CPU{Logical: 16, Allowed: 16, Threads: 8}, Memory: Memory{Total: 64, Available: 32, Limit: 16, Used: 4}}
	if got := h.Shared(1); !reflect.DeepEqual(got, h) {
		t.Errorf("alone: %+v", got)
	}
	got := h.Shared(4)
	if got.CPU.Threads != 2 || got.Memory != (Memory{Total: 16, Available: 8, Limit: 4, Used: 1}) {
		t.Errorf("of four: %+v", got)
	}
	if got := h.Shared(64); got.CPU.Threads != 1 {
		t.Errorf("of 64: %d threads", got.CPU.Threads)
	}
	h.CPU.Allowed, h.CPU.Threads = 4, 2
	if got := h.Shared(4); got.CPU.Threads != 2 {
		t.Errorf("bound to 4 of 16 processors: %d threads, want both cores", got.CPU.Threads)
	}
}
