package device

import (
	"fmt"
	"testing"
)

func TestNodes(t *testing.T) {
	sockets := func(of ...int) map[string]string {
		files := map[string]string{"sys/devices/system/node/node0/cpulist": "0-3\n"}
		for p, s := range of {
			files[fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/physical_package_id", p)] = fmt.Sprintln(s)
		}
		return files
	}
	for _, x := range []struct {
		files   map[string]string
		allowed []int
		want    string
	}{
		{nil, []int{0, 1}, "[]"},
		{sockets(0, 0, 0, 0), []int{0, 1, 2, 3}, "[[0 1 2 3]]"},
		{map[string]string{"sys/devices/system/node/node0/cpulist": "0-1,4-5\n", "sys/devices/system/node/node1/cpulist": "2-3,6-7\n", "sys/devices/system/node/node10/cpulist": "\n"},
			[]int{0, 1, 2, 3, 4, 5, 6, 7}, "[[0 1 4 5] [2 3 6 7]]"}, // a node with only memory does not count
		{map[string]string{"sys/devices/system/node/node0/cpulist": "0-1\n", "sys/devices/system/node/node1/cpulist": "2-3\n"}, []int{1, 2}, "[[1] [2]]"},
		{map[string]string{"sys/devices/system/node/node0/cpulist": "0-1\n", "sys/devices/system/node/node1/cpulist": "2-3\n"}, []int{2, 3}, "[[2 3]]"}, // bound to one
		{sockets(0, 1, 0, 1), []int{0, 1, 2, 3}, "[[0 2] [1 3]]"}, // the memory is interleaved
		{sockets(0, 0, 1, 1), nil, "[]"},
	} {
		if got := fmt.Sprint(nodes(fakeRoot(t, x.files), x.allowed)); got != x.want {
			t.Errorf("%v of %v: %s, want %s", x.files, x.allowed, got, x.want)
		}
	}
}
