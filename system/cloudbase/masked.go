package cloudbase

import (
	"fmt"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// reconstruct is the objective of masked pre-training (He et al. 2022, with convolutions as in Woo et al.
// 2023): patches of the images are hidden, and transposed convolutions reconstruct them from the features of
// the rest. The loss of an example is the mean squared error of its hidden pixels.
func (n *net) reconstruct(b *graph.Builder) engine.Objective {
	x := n.pictures(b)
	s := x.Shape()
	high, wide := s[1]/n.MaskPatch, s[2]/n.MaskPatch
	mask := b.Reshape(b.Input(inputMask, graph.T(graph.F32, n.rows, n.steps(), high, wide)), s[0], high, 1, wide, 1)
	hidden := b.Reshape(b.BroadcastTo(mask, s[0], high, n.MaskPatch, wide, n.MaskPatch), s[0], s[1], s[2], 1)
	h := n.features(b, b.Mul(x, b.AddC(b.Neg(hidden), 1)), nil)
	for i := range n.Channels {
		out := s[3]
		if left := len(n.Channels) - 1 - i; left > 0 {
			out = n.Channels[left-1]
		}
		b.Block(fmt.Sprintf("decoder.%d", i), func() {
			// Each step doubles the image. Rows and columns that a halving cut off are 0.
			size := h.Shape()
			op := graph.Conv(2, 0)
			w := b.Param("weight", graph.KaimingNormal(out*4), size[3], out, 2, 2)
			h = b.ConvTranspose2D(op, h, w, b.Param("bias", graph.Zeros(), out), 2*size[1], 2*size[2])
			if i < len(n.Channels)-1 {
				h = b.LeakyRelu(h, leak)
			}
		})
	}
	if n.MaskSigmoid {
		h = b.Sigmoid(h)
	}
	var o engine.Objective
	b.Scope("loss", func() {
		square := b.Mul(b.Square(b.Sub(h, x)), hidden)
		count := b.MulC(b.Sum(b.Reshape(mask, n.rows, n.steps()*high*wide), 1), float64(n.MaskPatch*n.MaskPatch*s[3]))
		each := b.Div(b.Sum(b.Reshape(square, n.rows, n.steps()*s[1]*s[2]*s[3]), 1), b.MaxC(count, 1))
		o.Sum = b.Sum(b.Mul(each, b.Input(inputWeights, graph.T(graph.F32, n.rows))))
	})
	return o
}
