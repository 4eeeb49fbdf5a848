package arm64

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEncode compares every instruction with LLVM's assembler, where that is installed.
func TestEncode(t *testing.T) {
	mc, err := exec.LookPath("llvm-mc-19")
	if err != nil {
		t.Skip("llvm-mc-19 is not installed")
	}
	var source strings.Builder
	var words []uint32
	names := Instructions()
	slices.Sort(names)
	for _, name := range names {
		in := instructions[name]
		for _, o := range [][3]int{{0, 0, 1}, {31, 30, 1}, {5, 17, 0}} {
			operands := o[:map[form]int{two: 2, fromWord: 2, none: 1}[in.form]]
			if len(operands) == 0 {
				operands = o[:]
			}
			if (in.form == right) && o[2] == 0 {
				continue
			}
			word, text := Encode(name, operands...)
			words = append(words, word)
			fmt.Fprintln(&source, text)
		}
	}
	cmd := exec.Command(mc, "-triple=aarch64", "-mattr=+bf16,+i8mm", "--show-encoding")
	cmd.Stdin = strings.NewReader(source.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	lines := strings.Split(strings.TrimSpace(source.String()), "\n")
	found := regexp.MustCompile(`encoding: \[0x(..),0x(..),0x(..),0x(..)\]`).FindAllStringSubmatch(string(out), -1)
	if len(found) != len(words) {
		t.Fatalf("%d of %d instructions assembled:\n%s", len(found), len(words), out)
	}
	for i, f := range found {
		want, err := strconv.ParseUint(f[4]+f[3]+f[2]+f[1], 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		if words[i] != uint32(want) {
			t.Errorf("%s: %#08x, LLVM has %#08x", lines[i], words[i], want)
		}
	}
}
