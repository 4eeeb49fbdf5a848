package hf

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/nn"
)

// NeoX is the GPT-NeoX causal language model (Black et al. 2022): rotary
// positions on part of each head, fused query-key-value, attention and
// feed-forward side by side (Parallel) or one after the other.
type NeoX struct {
	Vocab, D, Layers, Heads, FF int
	MaxPositions                int
	RotaryPct, RotaryBase       float64
	Parallel                    bool
	Activation                  string
	Eps                         float64
	// Tied shares the embedding with the output layer.
	Tied    bool
	InitStd float64
	// Dropout is applied to the embedding and to both branches of a block,
	// AttentionDropout to the attention weights. Seed is the run's.
	Dropout, AttentionDropout float64
	Seed                      uint64
}

// Check reports a configuration that does not make a model.
func (m NeoX) Check() error {
	if err := checkSizes(m.Vocab, m.D, m.Layers, m.Heads, m.FF, m.MaxPositions); err != nil {
		return err
	}
	if r := m.RotaryDims(); r < 2 || r%2 != 0 || r > m.D/m.Heads {
		return wrong("rotary_pct", "rotary_pct %v of head size %d gives %d rotated dimensions: want an even number up to the head size", m.RotaryPct, m.D/m.Heads, r)
	}
	return checkActivation(m.Activation)
}

// RotaryDims is how many dimensions of a head are rotated.
func (m NeoX) RotaryDims() int { return int(m.RotaryPct * float64(m.D/m.Heads)) }

// Positions is the longest sequence the model was made for.
func (m NeoX) Positions() int { return m.MaxPositions }

// Sizes are the weights of the model's matrices: the tables of tokens, and the
// blocks. The rest is small.
func (m NeoX) Sizes() (tables, blocks float64) {
	tables = size.Float(m.Vocab, m.D)
	if !m.Tied {
		tables *= 2
	}
	return tables, blockSizes(m.Layers, m.D, m.FF)
}

// Dims are the sizes that all causal models have.
func (m NeoX) Dims() Dims { return Dims{m.Vocab, m.D, m.Layers} }

// WithLayers is the model with another number of blocks.
func (m NeoX) WithLayers(n int) Causal {
	m.Layers = n
	return m
}

func (m NeoX) init() graph.Init { return graph.Normal(m.InitStd) }

// Hidden is the model up to its final norm: [B, T, D].
func (m NeoX) Hidden(b *graph.Builder, in Input) (x *graph.Value) {
	in.check(b)
	if in.Types != nil || in.Positions != nil {
		b.Failf("GPT-NeoX takes neither token types nor positions: it has rotary ones")
	}
	b.Scope("gpt_neox", func() {
		x = in.drop(b, in.embed(b, "embed_in", m.Vocab, m.D, m.init()), m.Dropout, m.Seed)
		b.Scope("layers", func() {
			for i := range m.Layers {
				b.Block(fmt.Sprint(i), func() { x = m.block(b, in, x) })
			}
		})
		x = in.norm(b, "final_layer_norm", x, m.Eps)
	})
	return x
}

// Output is the output layer's weight [Vocab, D], for the function that Hidden was built
// into; call it outside any scope.
func (m NeoX) Output(b *graph.Builder) *graph.Value {
	if m.Tied {
		return b.State(b.StateValue("gpt_neox.embed_in.weight").State)
	}
	return nn.Embedding(b, "embed_out", m.Vocab, m.D, m.init())
}

// Logits returns the logits of the ids I32 [B, T] on a cache (nil for none): [B*T,
// Vocab].
func (m NeoX) Logits(b *graph.Builder, ids *graph.Value, c *nn.KVCache) *graph.Value {
	return causalLogits(b, m, Input{IDs: ids, Cache: c})
}

func (m NeoX) block(b *graph.Builder, in Input, x *graph.Value) *graph.Value {
	var att, ff *graph.Value
	h := in.norm(b, "input_layernorm", x, m.Eps)
	b.Scope("attention", func() { att = m.attention(b, in, h) })
	att = in.drop(b, att, m.Dropout, m.Seed)
	y := x
	if !m.Parallel {
		y = b.Add(x, att)
	}
	g := in.norm(b, "post_attention_layernorm", y, m.Eps)
	b.Scope("mlp", func() {
		up := b.Apply(activation(b, m.Activation), in.linear(b, "dense_h_to_4h", g, m.FF, m.init()))
		ff = in.linear(b, "dense_4h_to_h", up, m.D, m.init())
	})
	ff = in.drop(b, ff, m.Dropout, m.Seed)
	if m.Parallel {
		ff = b.Add(ff, att)
	}
	return b.Add(ff, y)
}

func (m NeoX) attention(b *graph.Builder, in Input, h *graph.Value) *graph.Value {
	qkv := in.linear(b, "query_key_value", h, 3*m.D, m.init())
	rot := graph.Rotary{Heads: m.Heads, Dims: m.RotaryDims(), Layout: graph.PackedHeads}
	if c := in.Cache; c != nil {
		rot.Offset = true
		table := rotaryState(b, c, graph.RotaryTable{Dims: rot.Dims, Base: m.RotaryBase})
		qkv = b.Rotary(rot, qkv, table, c.At)
	} else {
		qkv = b.Rotary(rot, qkv, b.RotaryTable(h.Shape()[1], rot.Dims, m.RotaryBase))
	}
	op := graph.Attention{Heads: m.Heads, Causal: true, Scale: nn.AttentionScale(m.D, m.Heads), Layout: graph.PackedHeads}
	return in.linear(b, "dense", in.attend(b, op, m.AttentionDropout, m.Seed, qkv), m.D, m.init())
}
