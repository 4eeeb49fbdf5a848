package device

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Nodes returns the processors that this process may use, by the part of the machine that has its
// own memory (a NUMA node) or, if there is only one, by socket. One list means that all are
// alike, nil that the system does not say.
func Nodes() [][]int { return nodes("/", allowedProcessors()) }

// nodes reads /sys below root.
func nodes(root string, allowed []int) [][]int {
	by := func(pattern string, node func(file string) (processors []int, of int)) (lists [][]int) {
		files, _ := filepath.Glob(filepath.Join(root, pattern)) // fails only on a bad pattern
		found := map[int][]int{}
		for _, f := range files {
			processors, of := node(f)
			for _, p := range processors {
				if slices.Contains(allowed, p) {
					found[of] = append(found[of], p)
				}
			}
		}
		for _, list := range found {
			slices.Sort(list)
			lists = append(lists, list)
		}
		slices.SortFunc(lists, func(a, b []int) int { return cmp.Compare(a[0], b[0]) })
		return lists
	}
	memory := 0
	lists := by("sys/devices/system/node/node[0-9]*/cpulist", func(file string) ([]int, int) {
		text, _ := os.ReadFile(file) // none, if it cannot be read
		memory++
		return parseList(strings.TrimSpace(string(text))), memory
	})
	if len(lists) > 1 {
		return lists
	}
	sockets := by("sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id", func(file string) ([]int, int) {
		socket, _ := readInt(file)
		processor := strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(file))), "cpu")
		return parseList(processor), int(socket)
	})
	if len(sockets) > len(lists) {
		return sockets
	}
	return lists
}
