package pass_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/engine/refdevice"
)

// Keeping activations in the host's memory between the halves changes no bit, whatever the budget
// and the recomputation, and no function needs more memory for it.
func TestOffloadedActivationsChangeNothing(t *testing.T) {
	left := 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		o := engine.CompileOptions{
			Traits: &refdevice.Traits, Verify: true, Staging: 16, // the smallest values too
			ComputeDType: rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16}).Draw(t, "low"),
			Recompute:    rapid.SampledFrom([]pass.Recompute{pass.RecomputeNone, pass.RecomputeSelective, pass.RecomputeFull}).Draw(t, "recompute"),
		}
		if rapid.Bool().Draw(t, "bus as fast as memory") {
			o.Price = func(n *graph.Node) float64 {
				in, out := graph.Transferred(n)
				return float64(in+out) + n.Cost().Bytes
			}
		}
		accumulation := rapid.IntRange(1, 2).Draw(t, "accumulation")
		compute := func() (*run, *engine.Program) { return trainOn(t, refdevice.Backend{}, m, accumulation, o) }
		want, _ := compute()
		o.OffloadActivations, o.Budget = true, want.temps*int64(rapid.IntRange(0, 9).Draw(t, "tenths"))/10
		got, p := compute()
		got.equal(t, want, fmt.Sprintf("with %d bytes of %d", o.Budget, want.temps))
		if got.temps > want.temps+want.temps/20+1024 { // from a worse packing
			t.Errorf("%d bytes are needed, %d with all on the device", got.temps, want.temps)
		}
		if p.Layout.Activations > 0 {
			left++
		}
	})
	if left == 0 {
		t.Error("nothing ever left")
	}
}

// The more of a transformer's activations are away, the less memory it needs, and no more of them
// are away than the budget requires.
func TestOffloadedActivationsFitTheBudget(t *testing.T) {
	for _, acc := range []int{1, 4} {
		s := reference()
		s.acc, s.model.Vocab = acc, 64
		o := engine.CompileOptions{Verify: true}
		_, f := s.compile(t, o)
		whole := f.Placement.Bytes
		o.OffloadActivations, o.Budget = true, whole
		if p, _ := s.compile(t, o); p.Layout.Host.Bytes != 0 {
			t.Errorf("%d bytes are away, and all fits", p.Layout.Host.Bytes)
		}
		last := int64(0)
		for _, percent := range []int64{90, 75, 60} {
			o.Budget = whole * percent / 100
			p, f := s.compile(t, o)
			t.Logf("%d micro-batches, %d %%: %.1f MB of %.1f, %.1f MB away", acc, percent, float64(f.Placement.Bytes)/1e6, float64(whole)/1e6, float64(p.Layout.Host.Bytes)/1e6)
			if f.Placement.Bound > o.Budget {
				t.Errorf("%d %%: %d bytes are alive, the budget is %d", percent, f.Placement.Bound, o.Budget)
			}
			if p.Layout.Host.Bytes <= last || p.Layout.Host.Bytes > 2*(whole-o.Budget) {
				t.Errorf("%d %%: %d bytes are away, %d with more memory", percent, p.Layout.Host.Bytes, last)
			}
			last = p.Layout.Host.Bytes
		}
	}
}
