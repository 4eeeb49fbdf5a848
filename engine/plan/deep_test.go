package plan_test

import (
	"testing"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/pass"
	"github.com/snug-ml/snug/nn/hf"
)

// TestDeepModelIsPlaced: a program with 10,000 placed values is placed within half a percent of what is live.
func TestDeepModelIsPlaced(t *testing.T) {
	m := hf.NeoX{Vocab: 512, D: 64, Layers: 200, Heads: 4, FF: 256, MaxPositions: 64,
		RotaryPct: .25, RotaryBase: 10000, Activation: "gelu", Eps: 1e-5, InitStd: .02}
	b := graph.NewBuilder("deep")
	h := m.Hidden(b, hf.Input{IDs: b.Input("ids", graph.T(graph.I32, 2, 64)), Train: true})
	loss := b.LinearCrossEntropy(b.Reshape(h, 128, m.D), m.Output(b), b.Input("labels", graph.T(graph.I32, 128)),
		b.Input("weights", graph.T(graph.F32, 128)), 64)
	b.Output("loss", loss)
	u := &pass.Unit{F: b.F, Loss: "loss", ComputeDType: graph.BF16, Recompute: pass.RecomputeSelective,
		Optimize: func(b *graph.Builder, params, grads []*graph.Value) {
			for i, p := range params {
				b.Accumulate(b.State(&graph.State{Name: "gradient." + p.Name, Type: p.Type, Role: graph.Gradient}), grads[i])
			}
		}}
	if err := pass.Run(u, pass.Options{}); err != nil {
		t.Fatal(err)
	}
	placed := 0
	for _, o := range u.Placement.Offset {
		if o >= 0 {
			placed++
		}
	}
	if placed < 10_000 {
		t.Errorf("only %d values", placed)
	}
	if gap := float64(u.Placement.Bytes)/float64(u.Placement.Bound) - 1; gap > .005 {
		t.Errorf("the arena is %.2f %% larger than what is live", 100*gap)
	}
}
