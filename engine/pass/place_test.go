package pass_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Placements hold on random programs under every treatment.
func TestPlacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := drawModel(t).unit(rapid.Bool().Draw(t, "optimizer"))
		u.Align = rapid.SampledFrom([]int64{16, 64, 256}).Draw(t, "align")
		u.Low = rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16}).Draw(t, "low")
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

// Compiling takes time in proportion to the program: eight times the layers
// take at most three times as long each (BenchmarkPasses has the figures). The
// least of some tries counts, for the machine may be busy.
func TestCompileTimeIsLinear(t *testing.T) {
	s := reference()
	o := engine.CompileOptions{Low: graph.BF16, Recompute: pass.RecomputeSelective}
	least := map[int]time.Duration{}
	for range 20 {
		for _, layers := range []int{6, 48} {
			s.model.Layers = layers
			start := time.Now()
			s.compile(t, o)
			if took := time.Since(start); least[layers] == 0 || took < least[layers] {
				least[layers] = took
			}
		}
		if least[48] <= 24*least[6] {
			t.Logf("6 layers %v, 48 layers %v", least[6], least[48])
			return
		}
	}
	t.Errorf("6 layers take %v, 48 layers %v", least[6], least[48])
}
