package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// workload is a model with its batch.
type workload struct {
	name string
	// gflop counts the matmuls of a training step as bench/README.md does.
	gflop float64
	vocab int // tokens
	model func(b *graph.Builder) engine.Objective
}

const vocab = 8192 // of a to d

var initial = graph.Normal(0.02)

// workloads are those of bench/README.md.
func workloads() []workload {
	return []workload{
		{"a", 91.8, vocab, gpt(vocab, 4, 256, 384, 6, 6, 1536)},
		{"b", 824.6, vocab, gpt(vocab, 8, 512, 512, 8, 8, 2048)},
		{"c", 212.0, vocab, encoder},
		{"d", 24.8, vocab, clips},
		{"gpt2", 6999.6, 50257, gpt(50257, 8, 1024, 768, 12, 12, 3072)},
		{"tiny", 0.0024, 96, gpt(96, 2, 16, 32, 1, 2, 64)}, // to try scripts
	}
}

// roundings are those of --master-weights.
var roundings = map[string]graph.RoundingMode{"fp32": graph.Exact, "stochastic": graph.Stochastic, "compensated": graph.Compensated}

// training is the step that is timed: the optimizer, AdamW unless another is asked for, with
// gradients clipped to norm 1.
func (w workload) training(o options) engine.Training {
	return engine.Training{
		Model:        func(b *graph.Builder, _ engine.Mode) engine.Objective { return w.model(b) },
		Accumulation: 1,
		Optimizer: engine.Optimizer{
			Rule: engine.Rule(o.Optimizer), Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01, MaxGradNorm: 1,
			Round: graph.Rounding{Mode: roundings[o.MasterWeights], Seed: 1},
		},
	}
}

// fill writes random data into the inputs of a loaded program.
func (w workload) fill(r *engine.Executable) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, v := range r.Program().Inputs {
		t, _ := r.Input(0, v.Name)
		switch v.Name {
		case engine.InputLR:
			t.F32()[0] = 3e-4
		case engine.InputInvWeight:
			labels, _ := r.Input(0, "labels")
			t.F32()[0] = 1 / float32(len(labels.I32()))
		case "weights":
			for i := range t.F32() {
				t.F32()[i] = 1
			}
		case "pictures":
			for i := range t.F32() {
				t.F32()[i] = float32(rng.NormFloat64())
			}
		default:
			limit := w.vocab
			if v.Name == "labels" && len(t.I32()) < 64 {
				limit = 2 // classes
			}
			for i := range t.I32() {
				t.I32()[i] = int32(rng.IntN(limit))
			}
		}
	}
}

// block is a pre-norm transformer block.
func block(b *graph.Builder, x *graph.Value, heads, ff int, causal bool) *graph.Value {
	d := x.Shape().Last()
	h := nn.LayerNorm(b, "ln1", x, 1e-5)
	qkv := nn.Linear(b, "qkv", h, 3*d, true, initial)
	o := b.Attention(graph.Attention{Heads: heads, Causal: causal, Scale: nn.AttentionScale(d, heads), Layout: graph.PackedQKV}, qkv)
	x = b.Add(x, nn.Linear(b, "o", o, d, true, initial))
	h = nn.LayerNorm(b, "ln2", x, 1e-5)
	return b.Add(x, nn.MLP(b, h, "f1", "f2", ff, graph.FnGELU, initial, initial))
}

func blocks(b *graph.Builder, x *graph.Value, n, heads, ff int, causal bool) *graph.Value {
	for i := range n {
		b.Block(fmt.Sprintf("b.%d", i), func() { x = block(b, x, heads, ff, causal) })
	}
	return x
}

// embed is token plus position embedding; table is the tokens'.
func embed(b *graph.Builder, vocab, batch, t, d int) (x, table *graph.Value) {
	table = nn.Embedding(b, "tok", vocab, d, initial)
	pos := nn.Embedding(b, "pos", t, d, initial)
	return b.Add(b.Embedding(table, b.Input("ids", graph.T(graph.I32, batch, t))), pos), table
}

func weights(b *graph.Builder, n int) (labels, w *graph.Value) {
	return b.Input("labels", graph.T(graph.I32, n)), b.Input("weights", graph.T(graph.F32, n))
}

// gpt is a causal language model whose head is tied to the embedding.
func gpt(vocab, batch, t, d, layers, heads, ff int) func(b *graph.Builder) engine.Objective {
	return func(b *graph.Builder) engine.Objective {
		x, table := embed(b, vocab, batch, t, d)
		x = nn.LayerNorm(b, "ln", blocks(b, x, layers, heads, ff, true), 1e-5)
		labels, w := weights(b, batch*t)
		return engine.Objective{Sum: b.LinearCrossEntropy(b.Reshape(x, batch*t, d), table, labels, w, chunk)}
	}
}

// chunk is the number of rows of logits that the language models hold at a time.
const chunk = 2048

// encoder is workload c.
func encoder(b *graph.Builder) engine.Objective {
	const batch, t, d = 16, 192, 384
	x, _ := embed(b, vocab, batch, t, d)
	x = nn.LayerNorm(b, "ln0", x, 1e-5)
	x = nn.LayerNorm(b, "ln", blocks(b, x, 6, 12, 1536, false), 1e-5)
	first := b.Reshape(b.Slice(x, 1, 0, 1), batch, d)
	pooled := b.Tanh(nn.Linear(b, "pool", first, d, true, initial))
	labels, w := weights(b, batch)
	return engine.Objective{Sum: b.CrossEntropy(nn.Linear(b, "cls", pooled, 2, true, initial), labels, w)}
}
