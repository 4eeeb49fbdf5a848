package pass_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Placements hold on random programs under every treatment.
func TestPlacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := drawModel(t).unit(rapid.Bool().Draw(t, "optimizer"))
		u.Align = rapid.SampledFrom([]int64{16, 64, 256}).Draw(t, "align")
		u.ComputeDType = rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16}).Draw(t, "low")
		u.Recompute = rapid.SampledFrom([]pass.Recompute{pass.RecomputeNone, pass.RecomputeSelective, pass.RecomputeWide, pass.RecomputeFull, pass.RecomputeAuto}).Draw(t, "recompute")
		u.Budget = rapid.Int64Range(0, 1<<15).Draw(t, "budget")
		if err := pass.Run(u, pass.Options{Verify: true}); err != nil {
			t.Fatal(err)
		}
		if err := pass.CheckPlacement(u); err != nil {
			t.Fatal(err)
		}
	})
}
