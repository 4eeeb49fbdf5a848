package main

import (
	"fmt"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// clips is workload d: three convolutions on each frame, a transformer over frames.
func clips(b *graph.Builder) engine.Objective {
	const batch, frames, side, d = 20, 5, 64, 256
	x := b.Input("pictures", graph.T(graph.F32, batch*frames, side, side, 1))
	in := 1
	for i, out := range []int{64, 128, 256} {
		b.Scope(fmt.Sprintf("c.%d", 2*i), func() {
			w := b.Param("weight", graph.KaimingNormal(in*9), out, in, 3, 3)
			x = b.Relu(b.Conv2D(graph.Conv(2, 1), x, w, b.Param("bias", graph.Zeros(), out)))
		})
		in = out
	}
	h := b.Reshape(b.GlobalAvgPool2D(x), batch, frames, d)
	h = nn.Linear(b, "p", h, d, true, initial)
	h = b.Add(h, b.Param("pos", graph.Zeros(), frames, d))
	h = nn.LayerNorm(b, "ln", blocks(b, h, 4, 4, 1024, false), 1e-5)
	last := b.Reshape(b.Slice(h, 1, frames-1, 1), batch, d)
	labels, w := weights(b, batch)
	return engine.Objective{Sum: b.CrossEntropy(nn.Linear(b, "o", last, 10, true, initial), labels, w)}
}
