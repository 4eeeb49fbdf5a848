package dynamo

import (
	"fmt"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// decoder generates a text from an encoder's states. Each block has causal attention over the generated
// tokens, attention over the states, and a feed-forward layer, each after a norm (Vaswani et al. 2017; norms
// first as in GPT-2). Tokens are embedded and scored by the encoder's word embedding, which stays frozen, so
// only a projection before it is trained in the output layer.
type decoder struct {
	layers, d, heads, ff int
	length               int // number of positions
	act                  graph.Fn
	eps, std, drop       float64
	seed                 uint64
}

// source is what a decoder reads while generating.
type source struct {
	// states [B, T, D] are the encoder's; nil if their keys and values are in the cache.
	states *graph.Value
	lens   *graph.Value // I32 [B]: number of real states in each row
	train  bool
	// cache, if set, keeps keys and values from one token to the next.
	cache *decoderCache
}

// decoderCache holds keys and values for texts being generated: those of their tokens, and those of the
// encoder's states.
type decoderCache struct {
	nn.KVCache
	source int          // number of states of the encoder
	zero   *graph.Value // zeros, I32 [B]
}

// cacheName returns the name of a state of the cache, which the decoders of all tasks share.
func cacheName(path string) string {
	_, layer, _ := strings.Cut(path, "layers.")
	return "cache." + layer
}

// keep writes x [B, T, D], computed from the encoder's states, to the cache.
func (m *decoderCache) keep(b *graph.Builder, name string, x *graph.Value) {
	b.Emit(graph.CacheWrite{}, m.State(b, name, m.source, x.Shape()[2]), x, m.zero)
}

func (d decoder) dropout(b *graph.Builder, s source, x *graph.Value) *graph.Value {
	if !s.train {
		return x
	}
	return b.Dropout(x, d.drop, d.seed)
}

func (d decoder) linear(b *graph.Builder, name string, x *graph.Value, out int) *graph.Value {
	return nn.Linear(b, name, x, out, true, graph.XavierUniform(x.Shape().Last(), out))
}

// hidden returns the last states [B, L, D] for tokens ids [B, L]. table is the word embedding.
func (d decoder) hidden(b *graph.Builder, table, ids *graph.Value, s source) *graph.Value {
	positionEmbedding := nn.Embedding(b, "positions", d.length, d.d, graph.Normal(d.std))
	x := b.Embedding(table, ids)
	rows, l := ids.Shape()[0], ids.Shape()[1]
	if s.cache != nil {
		x = b.Add(x, b.Embedding(positionEmbedding, b.Reshape(s.cache.At, rows, 1)))
	} else {
		x = b.Add(x, b.Slice(positionEmbedding, 0, 0, l))
	}
	x = d.dropout(b, s, nn.LayerNorm(b, "embedding_norm", x, d.eps))
	b.Scope("layers", func() {
		for i := range d.layers {
			b.Block(fmt.Sprint(i), func() { x = d.block(b, x, s) })
		}
	})
	x = nn.LayerNorm(b, "norm", x, d.eps)
	return d.linear(b, "projection", x, d.d)
}

func (d decoder) block(b *graph.Builder, x *graph.Value, s source) *graph.Value {
	branch := func(h func(h *graph.Value) *graph.Value) func() {
		return func() { x = b.Add(x, d.dropout(b, s, h(nn.LayerNorm(b, "norm", x, d.eps)))) }
	}
	inSelfAttention(b, branch(func(h *graph.Value) *graph.Value { return d.selfAttention(b, h, s) }))
	inEncoderAttention(b, branch(func(h *graph.Value) *graph.Value { return d.encoderAttention(b, h, s) }))
	b.Scope("mlp", branch(func(h *graph.Value) *graph.Value {
		return d.linear(b, "down", b.Apply(d.act, d.linear(b, "up", h, d.ff)), d.d)
	}))
	return x
}

// inSelfAttention and inEncoderAttention run fn in the scope of one of the two attentions of a block, whose
// weights had other names in earlier versions.
func inSelfAttention(b *graph.Builder, fn func())    { b.ScopeRenamed("own", "self_attn", fn) }
func inEncoderAttention(b *graph.Builder, fn func()) { b.ScopeRenamed("source", "encoder_attn", fn) }

func (d decoder) attention() graph.Attention {
	return graph.Attention{Heads: d.heads, Scale: nn.AttentionScale(d.d, d.heads), Layout: graph.Separate}
}

// selfAttention is attention over the generated tokens.
func (d decoder) selfAttention(b *graph.Builder, h *graph.Value, s source) *graph.Value {
	q, k, v := d.linear(b, "query", h, d.d), d.linear(b, "key", h, d.d), d.linear(b, "value", h, d.d)
	op := d.attention()
	op.Causal = true
	if s.cache != nil {
		return d.linear(b, "output", s.cache.Attend(b, op, q, k, v), d.d)
	}
	return d.linear(b, "output", b.Attention(op, q, k, v), d.d)
}

// encoderAttention is attention over the encoder's states.
func (d decoder) encoderAttention(b *graph.Builder, h *graph.Value, s source) *graph.Value {
	q := d.linear(b, "query", h, d.d)
	var k, v *graph.Value
	if s.states != nil {
		k, v = d.read(b, s.states)
	} else {
		c := s.cache
		k, v = c.State(b, sourceKeys, c.source, d.d), c.State(b, sourceValues, c.source, d.d)
	}
	op := d.attention()
	op.Lens = true
	return d.linear(b, "output", b.Attention(op, q, k, v, s.lens), d.d)
}

// sourceKeys and sourceValues are the states of the cache for a block's keys and values of the encoder's
// states.
const sourceKeys, sourceValues = "key_cache", "value_cache"

// read returns the keys and values of the encoder's states. Call it in the scope of the attention over them.
func (d decoder) read(b *graph.Builder, states *graph.Value) (k, v *graph.Value) {
	return d.linear(b, "key", states, d.d), d.linear(b, "value", states, d.d)
}

// remember writes the keys and values of the encoder's states to the cache.
func (d decoder) remember(b *graph.Builder, states *graph.Value, m *decoderCache) {
	d.blocks(b, inEncoderAttention, func() {
		k, v := d.read(b, states)
		m.keep(b, sourceKeys, k)
		m.keep(b, sourceValues, v)
	})
}

// reorder copies what was generated in row parents[i] to row i, so a beam can continue from another.
func (d decoder) reorder(b *graph.Builder, parents *graph.Value, m *decoderCache) {
	d.blocks(b, inSelfAttention, func() { m.Reorder(b, parents, m.zero, d.d) })
}

// blocks calls f in the scope of an attention of each block.
func (d decoder) blocks(b *graph.Builder, attention func(b *graph.Builder, f func()), f func()) {
	b.Scope("layers", func() {
		for i := range d.layers {
			b.Scope(fmt.Sprint(i), func() { attention(b, f) })
		}
	})
}
