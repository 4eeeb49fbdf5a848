package fakegpu_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/cuda/driver"
	"github.com/snug-ml/snug/engine/cuda/fakegpu"
	"github.com/snug-ml/snug/engine/cuda/kernels"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
)

// A fault in a kernel that snug ships names the line of its source.
func TestFaultsNameTheSource(t *testing.T) {
	for _, target := range kernels.Targets {
		text, err := kernels.Kernel(target, "sum_rows_f32")
		if err != nil {
			t.Fatal(err)
		}
		text = fmt.Sprintf(".version 7.0\n.target sm_%d\n.address_size 64\n\n.visible .entry sum_rows_f32%s", target, text)
		for name, c := range map[string]struct {
			bug, instead string // regular expressions, of the PTX
			shift, cols  int    // of the input, and its columns; the memory is for 300
			checks       ptxsim.Check
			message      string
			source       string // a part of the line
		}{
			"none":                 {cols: 300, checks: ptxsim.CheckAll},
			"out of bounds":        {cols: 1000, message: "out of bounds", source: "to_f32(x[i])"},
			"misaligned":           {cols: 300, shift: 2, message: "misaligned", source: "to_f32(x[i])"},
			"uninitialized shared": {`\tbar\.sync.*;`, "", 0, 300, ptxsim.CheckAll, "nothing has been written there", "scratch[i]"},
			"race in a block":      {`\tbar\.sync.*;`, "", 0, 300, ptxsim.CheckShared, "race: byte", "scratch[TID >> 5] = v"},
			"race between blocks":  {`%ctaid\.x`, "0", 0, 300, ptxsim.CheckAll, "race: global memory", "out[(u64)row * parts + part] ="},
			"uninitialized register": {
				`\tld\.param\.f32 .*;`, "", 0, 300, ptxsim.CheckAll, "which the thread has not written", "w * scale",
			},
		} {
			t.Run(fmt.Sprintf("sm_%d, %s", target, name), func(t *testing.T) {
				planted := text
				if c.bug != "" {
					if planted = regexp.MustCompile(c.bug).ReplaceAllString(text, c.instead); planted == text {
						t.Fatalf("the kernel has no %s", c.bug)
					}
				}
				err := sumRows(t, planted, c.shift, c.cols, c.checks)
				if c.message == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), c.message) {
					t.Fatalf("%v, want: %s", err, c.message)
				}
				place := regexp.MustCompile(`\((\w+\.\w+):(\d+)\)`).FindStringSubmatch(err.Error())
				if place == nil {
					t.Fatalf("%v names no source", err)
				}
				source, readErr := os.ReadFile("../kernels/" + place[1])
				n, convErr := strconv.Atoi(place[2])
				if readErr != nil || convErr != nil {
					t.Fatal(readErr, convErr)
				}
				if line := strings.Split(string(source), "\n")[n-1]; !strings.Contains(line, c.source) {
					t.Errorf("%v\n%s is %q, want: %s", err, place[0], line, c.source)
				}
			})
		}
	}
}

// sumRows adds up two rows by the kernel of the text.
func sumRows(t *testing.T, text string, shift, cols int, checks ptxsim.Check) error {
	card := fakegpu.A10 // takes kernels for either target
	ctx, err := (&fakegpu.Driver{Installed: []driver.Card{card}, Options: ptxsim.Options{Checks: checks}}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ctx.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.Function("sum_rows_f32")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ctx.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	x, err := ctx.Alloc(2 * 300 * 4)
	if err != nil {
		t.Fatal(err)
	}
	out, err := ctx.Alloc(2 * 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Clear(x, 2*300*4); err != nil {
		t.Fatal(err)
	}
	var params []byte
	for _, v := range []any{uint64(x) + uint64(shift), uint64(out), uint32(cols), uint32(1), uint32(cols), float32(1)} {
		if params, err = binary.Append(params, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Launch(f, driver.Launch{Grid: [3]uint32{2, 1, 1}, Block: [3]uint32{256, 1, 1}, Params: params}); err != nil {
		t.Fatal(err)
	}
	return s.Sync()
}
