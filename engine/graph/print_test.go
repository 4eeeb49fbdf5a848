package graph_test

import (
	"testing"

	"github.com/snug-ml/snug/engine/graph"
)

// block is one transformer block with its loss: everything that can appear in a program's
// text.
func block() *graph.Func {
	b := graph.NewBuilder("micro")
	const batch, time, heads, k, vocab = 2, 8, 2, 4, 11
	width := heads * k
	ids := b.Input("ids", i32(batch, time))
	x := b.Embedding(b.Param("embed", graph.Normal(0.02), vocab, width), ids)
	b.Block("layers.0", func() {
		h := b.LayerNorm(x, b.Param("norm.gamma", graph.Ones(), width), b.Param("norm.beta", graph.Zeros(), width), 1e-5)
		b.Scope("attention", func() {
			qkv := b.Linear(h, b.Param("qkv", graph.Normal(0.02), 3*width, width), nil)
			qkv = b.Rotary(graph.Rotary{Heads: heads, Dims: 2, Layout: graph.PackedHeads}, qkv, b.RotaryTable(time, 2, 10000))
			h = b.Attention(graph.Attention{Heads: heads, Causal: true, Scale: 0.5, Layout: graph.PackedHeads}, qkv)
		})
		x = b.Add(x, b.Dropout(h, 0.1, 42))
	})
	labels, weights := b.Input("labels", i32(batch*time)), b.Input("weights", f32(batch*time))
	loss := b.LinearCrossEntropy(b.Reshape(x, -1, width), b.F.StateValue("embed"), labels, weights, 4)
	b.Output("loss", loss)
	b.InBackward(func() {
		acc := b.State(&graph.State{Name: "grad.embed", Type: f32(vocab, width), Role: graph.Gradient})
		dy := b.BroadcastTo(b.Scalar(0.5), batch, time, width)
		b.Output("grad.embed", b.Emit(graph.EmbeddingGrad{Vocab: vocab, Accumulate: true}, dy, ids, acc)[0])
	})
	b.AsClone(func() { b.Output("bf16", b.Cast(b.GELU(b.MulC(x, 2)), graph.BF16)) })
	body := &graph.Body{Inputs: 1, Results: []int{2}, Instrs: []graph.Instr{
		{Op: graph.Elementwise{Fn: graph.FnMulC, Alpha: 3}, Arg: []int{0}, DType: graph.F32},
		{Op: graph.Elementwise{Fn: graph.FnTanh}, Arg: []int{1}, DType: graph.BF16},
	}}
	b.Output("fused", b.Emit(graph.Fused{Body: body}, x)[0])
	return b.F
}

func TestPrint(t *testing.T) {
	f := block()
	if err := graph.Verify(f); err != nil {
		t.Error(err)
	}
	golden(t, "block.txt", f.String())
}

// The seed belongs to a run: it does not change the text, but it is part of an
// operation's key.
func TestKeys(t *testing.T) {
	body := func(alpha float64) *graph.Body {
		return &graph.Body{Inputs: 1, Results: []int{1}, Instrs: []graph.Instr{{Op: graph.Elementwise{Fn: graph.FnMulC, Alpha: alpha}, Arg: []int{0}, DType: graph.F32}}}
	}
	distinct := []graph.Op{
		graph.Dropout{P: 0.5, Seed: 1}, graph.Dropout{P: 0.5, Seed: 2}, graph.Dropout{P: 0.5, Seed: 1, Stream: 3},
		graph.Elementwise{Fn: graph.FnMulC, Alpha: 1}, graph.Elementwise{Fn: graph.FnMulC, Alpha: 2}, graph.Elementwise{Fn: graph.FnMulC, Alpha: 1, Out: graph.BF16},
		graph.LayerNorm{Eps: 1e-5}, graph.LayerNormGrad{Eps: 1e-5}, graph.LayerNorm{Eps: 1e-5, RMS: true},
		graph.Transpose{Perm: []int{0, 1}}, graph.Transpose{Perm: []int{1, 0}},
		graph.Fused{Body: body(1)}, graph.Fused{Body: body(2)},
		graph.Assign{}, graph.Assign{Add: true},
	}
	seen := map[string]graph.Op{}
	for _, op := range distinct {
		k := graph.Key(op)
		if other, ok := seen[k]; ok {
			t.Errorf("%#v and %#v have one key %s", op, other, k)
		}
		seen[k] = op
	}
	if a, b := graph.Key(graph.Fused{Body: body(1)}), graph.Key(graph.Fused{Body: body(1)}); a != b {
		t.Errorf("equal bodies have the keys %s and %s", a, b)
	}
}
