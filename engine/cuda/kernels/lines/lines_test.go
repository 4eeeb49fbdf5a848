package lines

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/cuda/kernels"
)

// Every kernel that is compiled beforehand has a table, whose lines exist, and every access to memory a line.
func TestEveryAccessHasALine(t *testing.T) {
	lengths := map[string]int{}
	length := func(file string) int {
		if lengths[file] == 0 {
			f, err := os.Open("../" + file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for s := bufio.NewScanner(f); s.Scan(); {
				lengths[file]++
			}
		}
		return lengths[file]
	}
	for _, target := range kernels.Targets {
		all, err := libraries[target]()
		if err != nil {
			t.Fatal(err)
		}
		names, err := kernels.Names(target)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) != len(all) {
			t.Errorf("sm_%d: tables for %d of %d kernels", target, len(all), len(names))
		}
		for name, k := range all {
			for _, c := range k.changes {
				if c.line > length(c.file) {
					t.Fatalf("%s of sm_%d comes from %s:%d, and the file has %d lines", name, target, c.file, c.line, length(c.file))
				}
			}
			for i, line := range k.body {
				if accesses(line) && k.source(i) == "" {
					t.Fatalf("%s of sm_%d: %q comes from nowhere", name, target, line)
				}
			}
		}
	}
}

func accesses(line string) bool {
	for _, op := range []string{"ld.global", "st.global", "ld.shared", "st.shared", "ldmatrix", "cp.async", "atom.", "red."} {
		if strings.Contains(line, op) {
			return true
		}
	}
	return false
}

// Lines are found in a copy of a kernel with declarations before its own, and blocks in its places.
func TestOfACopy(t *testing.T) {
	for _, target := range kernels.Targets {
		text, err := kernels.Kernel(target, "gemm_64_nn_f16")
		if err != nil {
			t.Fatal(err)
		}
		head, body, _ := strings.Cut(text, "\n{\n")
		lines := strings.Split(fmt.Sprintf(".target sm_%d\n.visible .entry loop_0(\n)\n{\n\tloop;\n}\n.visible .entry gemm_64_nn_f16_0%s\n{\n\t.reg .b32 %%held;\n%s", target, head, body), "\n")
		for i := 0; i < len(lines); i++ {
			if what, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(lines[i]), "//@"), " "); ok && strings.Contains(lines[i], "//@") {
				lines = slices.Replace(lines, i, i+1, "\t{", "\tfirst "+what, "\t{", "\tmiddle "+what, "\t}", "\tlast "+what, "\t}")
			}
		}
		source := Of(strings.Join(lines, "\n"))
		for what, want := range map[string]string{
			"mma.sync": `asm volatile("mma.sync`, "ldmatrix": `asm volatile("ldmatrix`, "bar.sync": "SYNC()",
			"first load": `"//@load`, "middle load": `"//@load`, "last load": `"//@load`, "first body": `"//@body`, "last body": `"//@body`,
		} {
			n := 0
			for i, line := range lines {
				if !strings.Contains(line, what) {
					continue
				}
				n++
				if got := textOf(t, source(i+1)); !strings.Contains(got, want) {
					t.Errorf("sm_%d: %s comes from %s: %s", target, line, source(i+1), got)
				}
			}
			if n == 0 {
				t.Errorf("sm_%d: no %s", target, what)
			}
		}
		if at := slices.Index(lines, "\tloop;"); source(at+1) != "" {
			t.Errorf("a generated kernel comes from %s", source(at+1))
		}
	}
}

// textOf is the line of a source that a place names.
func textOf(t *testing.T, place string) string {
	t.Helper()
	file, line, _ := strings.Cut(place, ":")
	n, err := strconv.Atoi(line)
	if err != nil {
		t.Fatalf("%q is no place", place)
	}
	text, err := os.ReadFile("../" + file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")[n-1]
}
