package device

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/klauspost/cpuid/v2"
	"golang.org/x/sys/cpu"

	"github.com/snug-ml/snug/internal/isa"
)

// CPU is the part of the processor that this process may use.
type CPU struct {
	Model   string `json:"model"`   // as the processor names itself
	Logical int    `json:"logical"` // processors of the machine that are online
	Allowed int    `json:"allowed"` // processors in this process's affinity mask
	// Processors are their numbers; nil if the system has no such mask.
	Processors []int   `json:"processors"`
	Cores      int     `json:"cores"`   // physical cores among the allowed ones (two threads of a core share its multipliers)
	Quota      float64 `json:"quota"`   // the cgroup's CPU limit in processors; 0: none
	Threads    int     `json:"threads"` // worthwhile worker threads: the cores, but not more than the quota, at least 1

	ISA        isa.Setting `json:"isa"`         // the best kernels that this processor runs
	AVX512BF16 bool        `json:"avx512_bf16"` // VDPBF16PS: bf16 matmuls with fp32 sums at twice the fp32 rate
	AMXBF16    bool        `json:"amx_bf16"`    // bf16 tile matmuls
	ARMBF16    bool        `json:"arm_bf16"`    // BFDOT: the same on arm64
	L1D        int         `json:"l1d_bytes"`   // of one core; 0: unknown
	L2         int         `json:"l2_bytes"`    // of one core; 0: unknown
	L3         int         `json:"l3_bytes"`    // of the last cache, shared; 0: none or unknown
	Features   []string    `json:"features"`
}

func (c *CPU) String() string {
	if c.Model == "" {
		return "CPU (" + runtime.GOARCH + ")"
	}
	return c.Model
}

// MultipliesBF16 reports whether the hardware multiplies bf16.
func (c *CPU) MultipliesBF16() bool { return c.AVX512BF16 || c.AMXBF16 || c.ARMBF16 }

func (c *CPU) automatic() (Precision, string) {
	switch {
	case c.AVX512BF16:
		return BF16, "this processor multiplies bf16 (AVX512_BF16)"
	case c.AMXBF16:
		return BF16, "this processor multiplies bf16 (AMX)"
	case c.ARMBF16:
		return BF16, "this processor multiplies bf16 (FEAT_BF16)"
	}
	return FP32, "this processor has no bf16 multiplication"
}

func (c *CPU) check(p Precision) (string, error) {
	switch p {
	case TF32:
		return "", fmt.Errorf("tf32 is a format of NVIDIA tensor cores")
	case BF16:
		if !c.MultipliesBF16() {
			return "as asked; emulated by rounding, no faster than fp32 on this processor", nil
		}
	case FP16:
		return "as asked, with dynamic loss scaling; emulated by rounding, no faster than fp32 on a CPU", nil
	}
	return "as asked", nil
}

func detectCPU(root string, quota float64) CPU {
	c := CPU{
		Model:   strings.TrimSpace(cpuid.CPU.BrandName),
		Logical: onlineProcessors(root),
		Quota:   quota,
		L1D:     max(cpuid.CPU.Cache.L1D, 0),
		L2:      max(cpuid.CPU.Cache.L2, 0),
		L3:      max(cpuid.CPU.Cache.L3, 0),
		ISA:     isa.Best().Setting(),
	}
	if c.Model == "" {
		c.Model = modelName(root)
	}
	x := &cpu.X86
	c.AVX512BF16 = isa.Runs(isa.AVX512BF16)
	c.AMXBF16 = x.HasAMXTile && x.HasAMXBF16
	c.ARMBF16 = isa.Runs(isa.NEONBF16)
	c.Features = features()
	if k := caches(root); k != [3]int{} {
		c.L1D, c.L2, c.L3 = k[0], k[1], k[2]
	}

	allowed := allowedProcessors()
	c.Processors = allowed
	if allowed == nil {
		// No affinity on this system: Go counted the processors at startup.
		c.Allowed, c.Cores = runtime.NumCPU(), runtime.NumCPU()
	} else {
		c.Allowed, c.Cores = len(allowed), countCores(root, allowed)
	}
	c.Logical = max(c.Logical, c.Allowed)
	c.Threads = c.Cores
	if quota > 0 {
		// More threads than whole processors of quota would all be stopped in each period.
		c.Threads = max(1, min(c.Threads, int(quota)))
	}
	return c
}

// features lists the features that matter to numeric kernels.
func features() []string {
	x, a := &cpu.X86, &cpu.ARM64
	var names []string
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"avx", x.HasAVX}, {"avx2", x.HasAVX2}, {"fma", x.HasFMA}, {"bmi2", x.HasBMI2},
		{"avx512f", x.HasAVX512F}, {"avx512bw", x.HasAVX512BW}, {"avx512dq", x.HasAVX512DQ}, {"avx512vl", x.HasAVX512VL},
		{"avx512_vnni", x.HasAVX512VNNI}, {"avx512_bf16", x.HasAVX512BF16},
		{"avx512_fp16", cpuid.CPU.Supports(cpuid.AVX512FP16)}, {"f16c", cpuid.CPU.Supports(cpuid.F16C)},
		{"amx_tile", x.HasAMXTile}, {"amx_bf16", x.HasAMXBF16},
		{"asimd", a.HasASIMD}, {"asimdhp", a.HasASIMDHP}, {"asimddp", a.HasASIMDDP}, {"sve", a.HasSVE}, {"sve2", a.HasSVE2},
		{"i8mm", a.HasI8MM}, {"bf16", isa.Runs(isa.NEONBF16)},
	} {
		if f.has {
			names = append(names, f.name)
		}
	}
	return names
}

// modelName reads the processor's name where cpuid has none (arm64): as the kernel
// reports it, otherwise by the numbers of its cores, otherwise the name of the board.
func modelName(root string) string {
	text, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return ""
	}
	board := ""
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			return strings.TrimSpace(value)
		case "Model":
			board = strings.TrimSpace(value)
		}
	}
	vendor, _ := os.ReadFile(filepath.Join(root, "sys/class/dmi/id/sys_vendor")) // boards may have none
	return cmp.Or(armName(string(text), strings.TrimSpace(string(vendor))), board)
}

// onlineProcessors counts the machine's processors from a list such as "0-3,8"; 0 if unknown.
func onlineProcessors(root string) int {
	text, err := os.ReadFile(filepath.Join(root, "sys/devices/system/cpu/online"))
	if err != nil {
		return 0
	}
	return len(parseList(strings.TrimSpace(string(text))))
}

// parseList reads the kernel's list format, "0-3,8"; nil if it is not one.
func parseList(s string) []int {
	var all []int
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || a < 0 || b < a || b > 1<<20 {
			return nil
		}
		for i := a; i <= b; i++ {
			all = append(all, i)
		}
	}
	return all
}

// countCores counts the physical cores among these processors, by the first sibling of each.
func countCores(root string, processors []int) int {
	cores := map[int]bool{}
	for _, n := range processors {
		text, err := os.ReadFile(filepath.Join(root, fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", n)))
		siblings := parseList(strings.TrimSpace(string(text)))
		if err != nil || len(siblings) == 0 {
			return len(processors)
		}
		cores[siblings[0]] = true
	}
	return len(cores)
}

// caches reads the sizes of the data caches of processor 0: L1, L2, L3.
func caches(root string) (sizes [3]int) {
	for i := range 8 {
		dir := filepath.Join(root, fmt.Sprintf("sys/devices/system/cpu/cpu0/cache/index%d", i))
		level, ok := readInt(filepath.Join(dir, "level"))
		kind, err1 := os.ReadFile(filepath.Join(dir, "type"))
		size, err2 := os.ReadFile(filepath.Join(dir, "size"))
		if !ok || err1 != nil || err2 != nil || level < 1 || level > 3 || strings.TrimSpace(string(kind)) == "Instruction" {
			continue
		}
		digits := strings.TrimRight(strings.TrimSpace(string(size)), "KMG")
		n, err := strconv.Atoi(digits)
		if err != nil {
			continue
		}
		switch {
		case strings.Contains(string(size), "K"):
			n <<= 10
		case strings.Contains(string(size), "M"):
			n <<= 20
		}
		sizes[level-1] = n
	}
	return sizes
}
