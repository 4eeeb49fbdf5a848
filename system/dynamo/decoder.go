package dynamo

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// decoder writes a text from an encoder's states: blocks of causal attention
// over what was written, attention over the states, and a feed-forward layer,
// each behind a norm (Vaswani et al. 2017; norms first as in GPT-2). Tokens
// come in and go out by the encoder's word embedding, which stays frozen: a
// projection in front of it is all that the output layer trains.
type decoder struct {
	layers, d, heads, ff int
	length               int // positions
	act                  graph.Fn
	eps, std, drop       float64
	seed                 uint64
}

// source is what a decoder reads while it writes.
type source struct {
	// states [B, T, D] of the encoder; nil: their keys and values lie in memory.
	states *graph.Value
	lens   *graph.Value // I32 [B]: real ones of each row
	train  bool
	// memory, when set, holds keys and values from one token to the next.
	memory *memory
}

// memory are the keys and values of a text that is being written.
type memory struct {
	rows, source, written int          // extents: texts, states, tokens
	at, lens              *graph.Value // I32 [B]: position of the new token, tokens known with it
	zero                  *graph.Value // I32 [B] of zeros
}

// cache is one tensor of the memory.
func (m *memory) cache(b *graph.Builder, name string, n, width int) *graph.Value {
	return b.State(&graph.State{Name: "memory." + name, Type: graph.T(graph.F32, m.rows, n, width), Role: graph.CacheRole})
}

// names of a block's tensors in the memory, with their extents.
func (m *memory) tensors(block int) []struct {
	name string
	n    int
} {
	at := func(s string) string { return fmt.Sprintf("%d.%s", block, s) }
	return []struct {
		name string
		n    int
	}{{at("own_key"), m.written}, {at("own_value"), m.written}, {at("source_key"), m.source}, {at("source_value"), m.source}}
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

// hidden are the last states [B, L, D] of tokens ids [B, L]; table is the word
// embedding.
func (d decoder) hidden(b *graph.Builder, table, ids *graph.Value, s source) *graph.Value {
	places := nn.Embedding(b, "positions", d.length, d.d, graph.Normal(d.std))
	x := b.Embedding(table, ids)
	rows, l := ids.Shape()[0], ids.Shape()[1]
	if s.memory != nil {
		x = b.Add(x, b.Embedding(places, b.Reshape(s.memory.at, rows, 1)))
	} else {
		x = b.Add(x, b.Slice(places, 0, 0, l))
	}
	x = d.dropout(b, s, nn.LayerNorm(b, "embedding_norm", x, d.eps))
	b.Scope("layers", func() {
		for i := range d.layers {
			b.Block(fmt.Sprint(i), func() { x = d.block(b, i, x, s) })
		}
	})
	x = nn.LayerNorm(b, "norm", x, d.eps)
	return d.linear(b, "projection", x, d.d)
}

func (d decoder) block(b *graph.Builder, i int, x *graph.Value, s source) *graph.Value {
	branch := func(name string, f func(h *graph.Value) *graph.Value) {
		b.Scope(name, func() { x = b.Add(x, d.dropout(b, s, f(nn.LayerNorm(b, "norm", x, d.eps)))) })
	}
	branch("own", func(h *graph.Value) *graph.Value { return d.own(b, i, h, s) })
	branch("source", func(h *graph.Value) *graph.Value { return d.cross(b, i, h, s) })
	branch("mlp", func(h *graph.Value) *graph.Value {
		return d.linear(b, "down", b.Apply(d.act, d.linear(b, "up", h, d.ff)), d.d)
	})
	return x
}

func (d decoder) attention() graph.Attention {
	return graph.Attention{Heads: d.heads, Scale: nn.AttentionScale(d.d, d.heads), Layout: graph.Separate}
}

// own is attention over what was written.
func (d decoder) own(b *graph.Builder, i int, h *graph.Value, s source) *graph.Value {
	q, k, v := d.linear(b, "query", h, d.d), d.linear(b, "key", h, d.d), d.linear(b, "value", h, d.d)
	op := d.attention()
	op.Causal = true
	if m := s.memory; m != nil {
		t := m.tensors(i)
		op.Lens = true
		k = b.Emit(graph.CacheWrite{}, m.cache(b, t[0].name, t[0].n, d.d), k, m.at)[0]
		v = b.Emit(graph.CacheWrite{}, m.cache(b, t[1].name, t[1].n, d.d), v, m.at)[0]
		return d.linear(b, "output", b.Attention(op, q, k, v, m.lens), d.d)
	}
	return d.linear(b, "output", b.Attention(op, q, k, v), d.d)
}

// cross is attention over the encoder's states.
func (d decoder) cross(b *graph.Builder, i int, h *graph.Value, s source) *graph.Value {
	q := d.linear(b, "query", h, d.d)
	var k, v *graph.Value
	if s.states != nil {
		k, v = d.read(b, s.states)
	} else {
		t := s.memory.tensors(i)
		k, v = s.memory.cache(b, t[2].name, t[2].n, d.d), s.memory.cache(b, t[3].name, t[3].n, d.d)
	}
	op := d.attention()
	op.Lens = true
	return d.linear(b, "output", b.Attention(op, q, k, v, s.lens), d.d)
}

// read gives the keys and values of the encoder's states. Call it in the scope
// of a block's branch "source".
func (d decoder) read(b *graph.Builder, states *graph.Value) (k, v *graph.Value) {
	return d.linear(b, "key", states, d.d), d.linear(b, "value", states, d.d)
}

// remember puts the keys and values of the encoder's states into the memory.
func (d decoder) remember(b *graph.Builder, states *graph.Value, m *memory) {
	b.Scope("layers", func() {
		for i := range d.layers {
			b.Scope(fmt.Sprint(i), func() {
				b.Scope("source", func() {
					k, v := d.read(b, states)
					t := m.tensors(i)
					b.Emit(graph.CacheWrite{}, m.cache(b, t[2].name, t[2].n, d.d), k, m.zero)
					b.Emit(graph.CacheWrite{}, m.cache(b, t[3].name, t[3].n, d.d), v, m.zero)
				})
			})
		}
	})
}

// reorder makes row i of the memory what row parents[i] was: a beam goes on
// from another.
func (d decoder) reorder(b *graph.Builder, parents *graph.Value, m *memory) {
	for i := range d.layers {
		for _, t := range m.tensors(i)[:2] {
			c := m.cache(b, t.name, t.n, d.d)
			rows := b.Embedding(b.Reshape(c, m.rows, t.n*d.d), parents)
			b.Emit(graph.CacheWrite{}, c, b.Reshape(rows, m.rows, t.n, d.d), m.zero)
		}
	}
}
