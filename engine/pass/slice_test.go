package pass_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Blocks in parts compute the bits of the whole, dropout and the statistics of the batch
// included. Only what is summed over parts, gradients of weights, is rounded
// differently: by no more than the order of any float32 sum.
func TestSlicesStayNear(t *testing.T) {
	cut := 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		low := rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16}).Draw(t, "low")
		unit := func(r pass.Recompute, stop string) *pass.Unit {
			u := m.unit(false)
			u.ComputeDType, u.Recompute = low, r
			if err := pass.Run(u, pass.Options{Stop: stop, Verify: true}); err != nil {
				t.Fatal(err)
			}
			return u
		}
		want := forward(t, unit(pass.RecomputeNone, "tidy").F, "accumulate")
		u := unit(pass.RecomputeSlices, "recompute")
		before := len(u.F.Nodes)
		if err := pass.SliceAll(u, modelB); err != nil {
			t.Fatal(err)
		}
		if err := graph.Verify(u.F); err != nil {
			t.Fatal(err)
		}
		cut += len(u.F.Nodes) - before
		got := forward(t, u.F, "accumulate")
		got.near(t, want, 1e-4, "in parts")
		for _, n := range got.names {
			if !strings.Contains(n, "gradient.") && !bytes.Equal(got.data[n], want.data[n]) {
				t.Fatalf("%s differs", n)
			}
		}
	})
	if cut == 0 {
		t.Error("nothing was cut")
	}
}

// A wide feed-forward layer needs less memory in parts, and less still in more parts.
func TestSlicesSaveMemory(t *testing.T) {
	for _, acc := range []int{1, 4} {
		s := reference()
		s.acc, s.batch, s.model.FF, s.model.Vocab, s.model.Dropout = acc, 8, 8*s.model.D, 64, .1
		_, full := s.compile(t, engine.CompileOptions{Recompute: pass.RecomputeFull})
		last := full.Placement.Bytes
		for _, parts := range []int{2, 4, 8} {
			_, f := s.compile(t, engine.CompileOptions{Recompute: pass.RecomputeSlices, Slices: parts, Verify: true})
			t.Logf("%d micro-batches, %d parts: %.1f MB of %.1f", acc, parts, float64(f.Placement.Bytes)/1e6, float64(full.Placement.Bytes)/1e6)
			if f.Placement.Bytes >= last {
				t.Errorf("%d parts need %d bytes, fewer %d", parts, f.Placement.Bytes, last)
			}
			last = f.Placement.Bytes
			if !slices.Contains(f.Blocks, pass.RecomputeSlices) {
				t.Errorf("%d parts: the blocks are %v", parts, f.Blocks)
			}
		}
		if last > full.Placement.Bytes*7/10 {
			t.Errorf("8 parts need %d of %d bytes", last, full.Placement.Bytes)
		}
	}
}
