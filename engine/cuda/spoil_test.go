package cuda_test

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/snug-ml/snug/engine/conformance"
	"github.com/snug-ml/snug/engine/cuda/ptxsim"
	"github.com/snug-ml/snug/engine/graph"
)

// withoutStores removes the stores to global memory of a kernel.
func withoutStores(t *testing.T, ptx, kernel string) string {
	t.Helper()
	head, rest, ok := strings.Cut(ptx, ".entry "+kernel+"(")
	if !ok {
		return ptx
	}
	body, tail, more := strings.Cut(rest, ".entry ")
	without := regexp.MustCompile(`(?m)^.*\bst\.(global\.)?f32 .*$`).ReplaceAllString(body, "")
	if without == body {
		t.Errorf("%s stores nothing", kernel)
	}
	if more {
		without += ".entry " + tail
	}
	return head + ".entry " + kernel + "(" + without
}

// What a kernel leaves out shows in the result, though memory is cleared when a program is loaded and most of it
// then holds numbers of other operations.
func TestStaleMemoryShows(t *testing.T) {
	for kernel, c := range map[string]struct {
		build func(b *graph.Builder, x *graph.Value) *graph.Value
		cols  int
	}{
		"sum_rows_f32":  {func(b *graph.Builder, x *graph.Value) *graph.Value { return b.Add(b.Sum(x, 1), b.Sum(b.Neg(x), 1)) }, 20000}, // the workspace
		"max_short_f32": {func(b *graph.Builder, x *graph.Value) *graph.Value { return b.Sum(b.MaxAlong(x, 1), 0) }, 100},               // a temporary
		"sum_short_f32": {func(b *graph.Builder, x *graph.Value) *graph.Value { return b.Sum(x, 1) }, 100},                              // an output
	} {
		b := graph.NewBuilder("f")
		b.Output("y", c.build(b, b.Input("x", graph.T(graph.F32, 2, c.cols))))
		for _, plant := range []bool{false, true} {
			on := openPlanted(t, ptxsim.CheckAll, func(ptx string) string {
				if plant {
					ptx = withoutStores(t, ptx, kernel)
				}
				return ptx
			})
			out, err := conformance.On(on, "fuse").Run(b.F, map[string][]float64{"x": make([]float64, 2*c.cols)})
			if err != nil {
				t.Fatal(err)
			}
			if y := out["y"][0]; math.IsNaN(y) != plant {
				t.Errorf("%s: %g, stores removed: %t", kernel, y, plant)
			}
		}
	}
}
