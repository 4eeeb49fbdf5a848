package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/snug-ml/snug/internal/counts"
)

// row is a group of kernels in the table: those that differ in formats alone, or in
// what was fused into them. Its figures are those of the worst.
type row struct {
	name      string
	kernels   int
	threads   int
	t4        figures
	registers map[string]int // by architecture, from the PTX for sm_80
}

// formats are what the names of a group's kernels differ in.
var formats = regexp.MustCompile(`_(f16|bf16|f32|i32)(_|$)`)

// group is the name of a kernel without formats.
func group(kernel string) string {
	name := kind(kernel)
	for {
		shorter := formats.ReplaceAllString(name, "$2")
		if shorter == name {
			return name
		}
		name = shorter
	}
}

var maxThreads = regexp.MustCompile(`\.maxntid (\d+), 1, 1`)

// rows are the table by the figures of one assembler. texts are the kernels of all
// targets by name.
func rows(of assembled, texts []map[string]string) ([]*row, error) {
	found := map[string]*row{}
	counted := map[string]bool{}
	for _, t := range texts {
		for name, text := range t {
			g := group(name)
			r := found[g]
			if r == nil {
				r = &row{name: g, registers: map[string]int{}}
				found[g] = r
			}
			if !counted[name] {
				counted[name] = true
				r.kernels++
			}
			m := maxThreads.FindStringSubmatch(text)
			if m == nil {
				return nil, fmt.Errorf("kernel %s does not say how many threads it has: add __launch_bounds__", name)
			}
			r.threads = max(r.threads, number(m[1]))
		}
	}
	for b, kernels := range of {
		for name, f := range kernels {
			r := found[group(name)]
			if b.sm == 80 {
				r.registers[b.arch] = max(r.registers[b.arch], f.registers)
			}
			if b.arch == "sm_75" {
				r.t4.registers, r.t4.shared = max(r.t4.registers, f.registers), max(r.t4.shared, f.shared)
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *row) int { return cmp.Compare(a.name, b.name) }), nil
}

// resources are what each kernel for sm_75 takes, for plans: the most of those that a name stands for.
func resources(by []assembler, of assembled, texts map[string]string) (string, error) {
	most := map[string]counts.Resources{}
	for name, f := range of[build{"sm_75", 75}] {
		m := maxThreads.FindStringSubmatch(texts[name])
		if m == nil {
			return "", fmt.Errorf("kernel %s does not say how many threads it has: add __launch_bounds__", name)
		}
		r := most[kind(name)]
		r.Threads, r.Registers, r.Shared = max(r.Threads, number(m[1])), max(r.Registers, f.registers), max(r.Shared, f.shared)
		most[kind(name)] = r
	}
	var w strings.Builder
	fmt.Fprintf(&w, "# Assembled by ptxas %s for sm_75 (tools/ptxas).\n# kernel\tthreads\tregisters\tshared bytes\n", by[len(by)-1].version)
	for _, name := range slices.Sorted(maps.Keys(most)) {
		r := most[name]
		fmt.Fprintf(&w, "%s\t%d\t%d\t%d\n", name, r.Threads, r.Registers, r.Shared)
	}
	return w.String(), nil
}

// markdown is docs/kernels.md.
func markdown(by []assembler, rows []*row) string {
	var w strings.Builder
	versions := make([]string, len(by))
	for i, a := range by {
		versions[i] = a.version
	}
	fmt.Fprintf(&w, `# Kernels of engine/cuda

This page is written by tools/ptxas. With NVIDIA's ptxas it assembles every precompiled kernel and,
of the kernels generated for presets and the conformance table, the three longest of each kind. PTX
for sm_75 is assembled for sm_75, 86 and 89, and PTX for sm_80 for sm_80, 86, 89, 90 and 120. No
kernel spills registers or uses local memory on a card that runs it. No card is needed:

    go run ./tools/ptxas --write   # after a kernel changes
    .ci/run kernels                # compares, if a ptxas is found

Two versions of ptxas are used, one from CUDA 12 and one from CUDA 13, since drivers of both are in
use and the two disagree about some PTX. Both are Python packages; NVIDIA's license allows anybody
to use them, but not to redistribute them. The committed PTX is compiled with clang-19 from Debian
or Ubuntu:

    pip install --no-deps --target DIR nvidia-cuda-nvcc-cu12==12.9.86 nvidia-cuda-nvcc==13.2.86
    export SNUG_PTXAS=DIR/nvidia/cuda_nvcc/bin/ptxas:DIR/nvidia/cu13/bin/ptxas
    apt-get install clang-19

Assembled by ptxas %s; the figures are from the last of these.

Each row is a group of kernels that differ only in number formats or in what was fused into them,
and gives the most registers and shared memory that any of them uses. Blocks are the number that a
multiprocessor of a T4 holds at a time, given 65,536 registers, allocated to warps in units of 256,
64 KiB of shared memory, 1,024 threads and 16 blocks. They are computed, not measured.

`, strings.Join(versions, " and "))
	w.WriteString("| kernel | variants | threads | registers, sm_75 | shared bytes | blocks on a T4 | warps of 32 | limit | registers, sm_80 | sm_90 |\n|---|--:|--:|--:|--:|--:|--:|---|--:|--:|\n")
	for _, r := range rows {
		t4 := "| | | | | "
		if r.t4.registers > 0 {
			takes := counts.Resources{Threads: r.threads, Registers: r.t4.registers, Shared: r.t4.shared}
			blocks, limit := takes.Blocks()
			t4 = fmt.Sprintf("| %d | %d | %d | %d | %s ", r.t4.registers, r.t4.shared, blocks, blocks*takes.Warps(), limit)
		}
		later := "| | |"
		if n := r.registers["sm_80"]; n > 0 {
			later = fmt.Sprintf("| %d | %d |", n, r.registers["sm_90"])
		}
		fmt.Fprintf(&w, "| %s | %d | %d %s%s\n", r.name, r.kernels, r.threads, t4, later)
	}
	return w.String()
}
