package cloudbase

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// overTime joins the features of a window's images, from [B, steps, C] to [B, C].
func (n *net) overTime(b *graph.Builder, h *graph.Value) *graph.Value {
	switch n.Architecture {
	case "transformer":
		return n.transformer(b, h)
	case "ssm":
		return n.ssm(b, h)
	case "attention":
		if n.TimeAttention && n.steps() > 1 {
			return n.weigh(b, h)
		}
	}
	return b.Mean(h, 1)
}

// weigh is the guide's attention over time, with one weight for each image.
func (n *net) weigh(b *graph.Builder, h *graph.Value) (y *graph.Value) {
	b.Scope("temporal_attention", func() {
		s := linear(b, "1", b.Relu(linear(b, "0", h, n.size()/2)), 1)
		w := b.Softmax(b.Reshape(s, n.rows, n.steps()))
		y = b.Sum(b.Mul(h, b.Reshape(w, n.rows, n.steps(), 1)), 1)
	})
	return y
}

// mlpRatio is the width of a transformer block's inner layer, relative to its outer width.
const mlpRatio = 4

// transformer is an encoder over the images of a window: learned positions, pre-norm blocks of self-attention
// (Vaswani et al. 2017, Xiong et al. 2020), and the mean of the outputs.
func (n *net) transformer(b *graph.Builder, h *graph.Value) (y *graph.Value) {
	c := n.size()
	b.Scope("transformer", func() {
		h = b.Add(h, nn.Table(b, "positions", n.steps(), c, graph.Normal(0.02)))
		for i := range n.Layers {
			b.Block(fmt.Sprintf("blocks.%d", i), func() {
				qkv := linear(b, "qkv", nn.LayerNorm(b, "norm1", h, normEps), 3*c)
				a := graph.Attention{Heads: n.Heads, Scale: nn.AttentionScale(c, n.Heads), Layout: graph.PackedQKV}
				in := []*graph.Value{qkv}
				if n.train && n.AttentionDropout > 0 {
					a.Drop, a.Seed, a.Stream = n.AttentionDropout, n.seed, b.Stream()
					in = append(in, b.Input(graph.RunCounter, graph.T(graph.I32, 2)))
				}
				h = b.Add(h, n.dropout(b, linear(b, "out", b.Attention(a, in...), c), n.Dropout))
				inner := b.GELU(linear(b, "up", nn.LayerNorm(b, "norm2", h, normEps), mlpRatio*c))
				h = b.Add(h, n.dropout(b, linear(b, "down", inner, c), n.Dropout))
			})
		}
		y = b.Mean(nn.LayerNorm(b, "norm", h, normEps), 1)
	})
	return y
}

// These values give the shape of a Mamba block (Gu and Dao 2023, section 3.4).
const (
	ssmExpand = 2
	ssmKernel = 4
)

// ssm is a stack of selective state spaces over the images of a window, each with a residual connection,
// followed by the mean of the outputs.
func (n *net) ssm(b *graph.Builder, h *graph.Value) (y *graph.Value) {
	c := n.size()
	inner, rank := ssmExpand*c, (c+15)/16
	b.Scope("ssm", func() {
		for i := range n.Layers {
			b.Block(fmt.Sprintf("blocks.%d", i), func() {
				xz := nn.Linear(b, "in_proj", nn.LayerNorm(b, "norm", h, normEps), 2*inner, false, graph.XavierNormal(c, 2*inner))
				x, z := b.Slice(xz, 2, 0, inner), b.Slice(xz, 2, inner, inner)
				b.Scope("conv1d", func() {
					w := b.Param("weight", graph.KaimingNormal(ssmKernel), inner, 1, ssmKernel)
					x = b.SiLU(b.Conv1D(x, w, b.Param("bias", graph.Zeros(), inner), 1, 1, ssmKernel-1, 0, inner))
				})
				p := nn.Linear(b, "x_proj", x, rank+2*n.StateSize, false, graph.XavierNormal(inner, rank+2*n.StateSize))
				full := func(v *graph.Value) *graph.Value { return b.Cast(v, graph.F32) }
				bs, cs := b.Slice(p, 2, rank, n.StateSize), b.Slice(p, 2, rank+n.StateSize, n.StateSize)
				var dt *graph.Value
				b.Scope("dt_proj", func() {
					// The softplus of these biases spreads the steps evenly over the orders of magnitude from
					// 0.001 to 0.1.
					bias := b.Param("bias", graph.Init{Kind: graph.InitUniform, A: -6.907, B: -2.252}, inner)
					w := b.Param("weight", graph.XavierNormal(rank, inner), inner, rank)
					dt = b.Apply(graph.FnSoftplus, full(b.Linear(b.Slice(p, 2, 0, rank), w, bias)))
				})
				y := b.SelectiveScan(full(x), dt, n.decay(b, inner), full(bs), full(cs), b.Param("D", graph.Ones(), inner))
				out := nn.Linear(b, "out_proj", b.Mul(y, b.SiLU(z)), c, false, graph.XavierNormal(inner, c))
				h = b.Add(h, n.dropout(b, out, n.Dropout))
			})
		}
		y = b.Mean(nn.LayerNorm(b, "norm", h, normEps), 1)
	})
	return y
}

// decay returns the matrix A of the state space, [inner, states]. It starts at -1, -2, ... (S4D-real, Gu et
// al. 2022), each times the exponential of a weight, so it stays negative.
func (n *net) decay(b *graph.Builder, inner int) *graph.Value {
	rates := b.State(&graph.State{Name: b.Path("rates"), Type: graph.T(graph.F32, n.StateSize), Role: n.role(b.Layer()), Init: graph.Init{Kind: graph.InitIota}})
	a := b.State(&graph.State{Name: b.Path("A_log"), Type: graph.T(graph.F32, inner, n.StateSize), Role: graph.Weight})
	return b.Neg(b.Mul(b.Exp(a), b.AddC(rates, 1)))
}
