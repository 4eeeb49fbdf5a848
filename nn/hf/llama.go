package hf

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/nn"
)

// Llama is the causal language model of Llama 1 to 3, SmolLM and others (Touvron et al.
// 2023), or with QKNorm Qwen3: RMS norms before each branch, rotary positions on whole
// heads, keys and values of fewer heads than queries, a gated feed-forward layer.
type Llama struct {
	Vocab, D, Layers, FF int
	// Heads of queries, KVHeads of keys and values, each of HeadSize elements.
	Heads, KVHeads, HeadSize int
	MaxPositions             int
	Rope                     Rope
	Activation               string // of the gate
	Eps                      float64
	// QKNorm norms each head of queries and of keys: the model is a Qwen3.
	QKNorm bool
	// AttentionBias and FFBias add biases to the linear layers of the two branches.
	AttentionBias, FFBias bool
	// Tied shares the embedding with the output layer.
	Tied    bool
	InitStd float64
	// Dropout is applied to the embedding and to both branches of a block,
	// AttentionDropout to the attention weights. Seed is the run's.
	Dropout, AttentionDropout float64
	Seed                      uint64
}

// Check reports sizes that do not make a model.
func (m Llama) Check() error {
	if err := checkExtents(m.Vocab, m.D, m.Layers, m.Heads, m.FF, m.MaxPositions); err != nil {
		return err
	}
	switch {
	case m.HeadSize < 2 || m.HeadSize > maxExtent || m.HeadSize%2 != 0:
		return wrong("head_dim", "a head has %d dimensions, want an even number from 2 to %d: rotary embeddings rotate pairs", m.HeadSize, maxExtent)
	case m.KVHeads < 1 || m.KVHeads > m.Heads || m.Heads%m.KVHeads != 0:
		return wrong("n_kv_heads", "%d heads of queries cannot share %d of keys and values: want a number that divides them", m.Heads, m.KVHeads)
	case !m.QKNorm && m.D%m.Heads != 0:
		return wrong("n_heads", "width %d does not divide into %d heads, which transformers wants of a llama", m.D, m.Heads)
	case m.QKNorm && m.FFBias:
		return wrong("mlp_bias", "a qwen3 model has no biases in its feed-forward layers")
	}
	if err := m.Rope.Check(); err != nil {
		return err
	}
	return checkActivation(m.Activation)
}

// Positions is the longest sequence the model was made for.
func (m Llama) Positions() int { return m.MaxPositions }

// Sizes are the weights of the model's matrices: the tables of tokens, and the
// blocks. The rest is small.
func (m Llama) Sizes() (tables, blocks float64) {
	tables = size.Float(m.Vocab, m.D)
	if !m.Tied {
		tables *= 2
	}
	return tables, 2*size.Float(m.Layers, m.D, m.Heads+m.KVHeads, m.HeadSize) + 3*size.Float(m.Layers, m.D, m.FF)
}

// Dims are the sizes that all causal models have.
func (m Llama) Dims() Dims { return Dims{m.Vocab, m.D, m.Layers} }

// WithLayers is the model with another number of blocks.
func (m Llama) WithLayers(n int) Causal {
	m.Layers = n
	return m
}

func (m Llama) init() graph.Init { return graph.Normal(m.InitStd) }

// Hidden is the model up to its final norm: [B, T, D].
func (m Llama) Hidden(b *graph.Builder, in Input) (x *graph.Value) {
	in.check(b)
	if in.Types != nil || in.Positions != nil {
		b.Failf("Llama and Qwen3 take neither token types nor positions: they have rotary ones")
	}
	b.Scope("model", func() {
		x = in.drop(b, in.embed(b, "embed_tokens", m.Vocab, m.D, m.init()), m.Dropout, m.Seed)
		turn := m.rotary(b, in, x.Shape()[1])
		b.Scope("layers", func() {
			for i := range m.Layers {
				b.Block(fmt.Sprint(i), func() { x = m.block(b, in, x, turn) })
			}
		})
		x = in.rmsNorm(b, "norm", x, m.Eps)
	})
	return x
}

// Output is the output layer's weight [Vocab, D], for the function that Hidden was built
// into; call it outside any scope.
func (m Llama) Output(b *graph.Builder) *graph.Value {
	if m.Tied {
		return b.State(b.StateValue("model.embed_tokens.weight").State)
	}
	return nn.Embedding(b, "lm_head", m.Vocab, m.D, m.init())
}

// Logits returns the logits of the ids I32 [B, T] on a cache (nil for none): [B*T,
// Vocab].
func (m Llama) Logits(b *graph.Builder, ids *graph.Value, c *nn.KVCache) *graph.Value {
	return causalLogits(b, m, Input{IDs: ids, Cache: c})
}

// rotary returns the operation that rotates a number of heads of t tokens by their
// positions.
func (m Llama) rotary(b *graph.Builder, in Input, t int) func(x *graph.Value, heads int) *graph.Value {
	op := m.Rope.table(t, m.HeadSize)
	if c := in.Cache; c != nil {
		table := rotaryState(b, c, op)
		return func(x *graph.Value, heads int) *graph.Value {
			return b.Rotary(graph.Rotary{Heads: heads, Dims: m.HeadSize, Offset: true}, x, table, c.At)
		}
	}
	table := b.Emit(op)[0]
	return func(x *graph.Value, heads int) *graph.Value {
		return b.Rotary(graph.Rotary{Heads: heads, Dims: m.HeadSize}, x, table)
	}
}

func (m Llama) block(b *graph.Builder, in Input, x *graph.Value, turn func(*graph.Value, int) *graph.Value) *graph.Value {
	var y *graph.Value
	h := in.rmsNorm(b, "input_layernorm", x, m.Eps)
	b.Scope("self_attn", func() { y = m.attention(b, in, h, turn) })
	x = b.Add(x, in.drop(b, y, m.Dropout, m.Seed))
	h = in.rmsNorm(b, "post_attention_layernorm", x, m.Eps)
	b.Scope("mlp", func() {
		gate := b.Apply(activation(b, m.Activation), in.project(b, "gate_proj", h, m.FF, m.FFBias, m.init()))
		up := in.project(b, "up_proj", h, m.FF, m.FFBias, m.init())
		y = in.project(b, "down_proj", b.Mul(gate, up), m.D, m.FFBias, m.init())
	})
	return b.Add(x, in.drop(b, y, m.Dropout, m.Seed))
}

func (m Llama) attention(b *graph.Builder, in Input, h *graph.Value, turn func(*graph.Value, int) *graph.Value) *graph.Value {
	part := func(name string, heads int) *graph.Value {
		return in.project(b, name, h, heads*m.HeadSize, m.AttentionBias, m.init())
	}
	q, k, v := part("q_proj", m.Heads), part("k_proj", m.KVHeads), part("v_proj", m.KVHeads)
	if m.QKNorm {
		q, k = m.normHeads(b, in, "q_norm", q), m.normHeads(b, in, "k_norm", k)
	}
	op := graph.Attention{Heads: m.Heads, KVHeads: m.KVHeads, Causal: true, Scale: nn.AttentionScale(m.HeadSize, 1)}
	y := in.attend(b, op, m.AttentionDropout, m.Seed, turn(q, m.Heads), turn(k, m.KVHeads), v)
	return in.project(b, "o_proj", y, m.D, m.AttentionBias, m.init())
}

// normHeads norms every head of x [B, T, H*K] with the same K weights.
func (m Llama) normHeads(b *graph.Builder, in Input, name string, x *graph.Value) *graph.Value {
	s := x.Shape()
	y := in.rmsNorm(b, name, b.Reshape(x, s[0], s[1], -1, m.HeadSize), m.Eps)
	return b.Reshape(y, s...)
}
