package plan_test

import (
	"testing"

	"github.com/snug-ml/snug/device"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
)

// TestSpeedOfTF32: a plan in TF32 uses the card's TF32 rate for matmuls that round their factors, and its
// float32 rate for the others.
func TestSpeedOfTF32(t *testing.T) {
	a100 := card(t, "A100")
	full, _ := a100.MatmulRate(device.FP32)
	rounded, _ := a100.MatmulRate(device.TF32)
	s := plan.CardSpeed(a100, device.TF32, nil)
	if s.Half != rounded || s.Full != full || s.Peak != a100.TF32.Peak || s.PeakName != "specified tf32 peak" {
		t.Errorf("the speed is %+v", s)
	}
	b := graph.NewBuilder("f")
	x, w := b.Input("x", graph.T(graph.F32, 8192, 8192)), b.Input("w", graph.T(graph.F32, 8192, 8192))
	exact, fast := b.Emit(graph.MatMul{}, x, w)[0].Node, b.Emit(graph.MatMul{TF32: true}, x, w)[0].Node
	ratio := (s.Seconds(exact) - s.Launch) / (s.Seconds(fast) - s.Launch)
	if want := rounded / full; ratio < .99*want || ratio > 1.01*want {
		t.Errorf("a large matmul is %.3f times as fast in TF32, want %.3f", ratio, want)
	}
}
