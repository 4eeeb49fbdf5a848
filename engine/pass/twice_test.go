package pass_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
)

// Computing the backward half twice changes no bit, whatever else is done to the function.
func TestTwiceChangesNothing(t *testing.T) {
	doubled := 0
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		m.clip = 1
		o := engine.CompileOptions{
			Verify:       true,
			ComputeDType: rapid.SampledFrom([]graph.DType{graph.F32, graph.BF16}).Draw(t, "low"),
			Recompute:    rapid.SampledFrom([]pass.Recompute{pass.RecomputeNone, pass.RecomputeSelective, pass.RecomputeFull, pass.RecomputeAuto}).Draw(t, "recompute"),
			Budget:       int64(rapid.IntRange(0, 4096).Draw(t, "budget")),
		}
		tr := m.training(1)
		tr.Optimizer.Clip = engine.ClipTwoPasses
		compute := func(o engine.CompileOptions) (*run, int) {
			p, err := engine.CompileTraining(tr, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range p.Funcs {
				checkPlacement(t, f)
			}
			r, err := execute(p, engine.FuncStep)
			if err != nil {
				t.Fatal(err)
			}
			return r, len(p.Func(engine.FuncStep).F.Nodes)
		}
		got, nodes := compute(o)
		o.Skip = without("twice")
		want, once := compute(o)
		got.equal(t, want, "twice")
		if nodes > once {
			doubled++
		}
	})
	if doubled == 0 {
		t.Error("nothing was computed twice")
	}
}
