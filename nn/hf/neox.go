package hf

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
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

// Check reports a configuration that makes no model.
func (m NeoX) Check() error {
	switch {
	case m.Vocab < 1 || m.D < 1 || m.Layers < 1 || m.Heads < 1 || m.FF < 1 || m.MaxPositions < 1:
		return fmt.Errorf("vocabulary, width, layers, heads, feed-forward width and positions must be positive: %+v", m)
	case m.D%m.Heads != 0:
		return fmt.Errorf("width %d does not divide into %d heads", m.D, m.Heads)
	case m.RotaryDims()%2 != 0 || m.RotaryDims() > m.D/m.Heads:
		return fmt.Errorf("rotary_pct %v of head size %d gives %d rotated dimensions: want an even number up to the head size", m.RotaryPct, m.D/m.Heads, m.RotaryDims())
	}
	_, err := nn.Activation(m.Activation)
	return err
}

// RotaryDims is how many dimensions of a head are rotated.
func (m NeoX) RotaryDims() int { return int(m.RotaryPct * float64(m.D/m.Heads)) }

// Cache holds the keys and values of earlier positions while generating.
type Cache struct {
	// Positions is the capacity.
	Positions int
	// At I32 [B] is the position of each row's first new token, Lens I32 [B]
	// the number of positions known after it.
	At, Lens *graph.Value
}

// Input says what the model runs on.
type Input struct {
	IDs *graph.Value // I32 [B, T]
	// Segments I32 [B, T], when set, keeps documents that share a row apart.
	Segments *graph.Value
	// Train enables dropout.
	Train bool
	// Cache, when set, is written and read.
	Cache *Cache
}

func (m NeoX) init() graph.Init { return graph.Normal(m.InitStd) }

// Hidden is the model up to its final norm: [B, T, D].
func (m NeoX) Hidden(b *graph.Builder, in Input) (x *graph.Value) {
	b.Scope("gpt_neox", func() {
		table := nn.Embedding(b, "embed_in", m.Vocab, m.D, m.init())
		x = m.drop(b, in, m.Dropout, b.Embedding(table, in.IDs))
		b.Scope("layers", func() {
			for i := range m.Layers {
				b.Block(fmt.Sprint(i), func() { x = m.block(b, in, x) })
			}
		})
		x = nn.LayerNorm(b, "final_layer_norm", x, m.Eps)
	})
	return x
}

// Output is the output layer's weight [Vocab, D], for the function that Hidden
// was built into; call it outside of any scope.
func (m NeoX) Output(b *graph.Builder) *graph.Value {
	if m.Tied {
		return b.State(b.F.StateValue("gpt_neox.embed_in.weight").State)
	}
	return nn.Embedding(b, "embed_out", m.Vocab, m.D, m.init())
}

func (m NeoX) drop(b *graph.Builder, in Input, p float64, x *graph.Value) *graph.Value {
	if !in.Train {
		return x
	}
	return b.Dropout(x, p, m.Seed)
}

func (m NeoX) block(b *graph.Builder, in Input, x *graph.Value) *graph.Value {
	act, err := nn.Activation(m.Activation)
	if err != nil {
		b.Failf("%w", err)
	}
	var att *graph.Value
	h := nn.LayerNorm(b, "input_layernorm", x, m.Eps)
	b.Scope("attention", func() { att = m.attention(b, in, h) })
	att = m.drop(b, in, m.Dropout, att)
	y := x
	if !m.Parallel {
		y = b.Add(x, att)
	}
	g := nn.LayerNorm(b, "post_attention_layernorm", y, m.Eps)
	var ff *graph.Value
	b.Scope("mlp", func() {
		ff = nn.MLP(b, g, "dense_h_to_4h", "dense_4h_to_h", m.FF, act, m.init(), m.init())
	})
	ff = m.drop(b, in, m.Dropout, ff)
	if m.Parallel {
		ff = b.Add(ff, att)
	}
	return b.Add(ff, y)
}

func (m NeoX) attention(b *graph.Builder, in Input, h *graph.Value) *graph.Value {
	batch, t := h.Shape()[0], h.Shape()[1]
	qkv := nn.Linear(b, "query_key_value", h, 3*m.D, true, m.init())
	positions := t
	if in.Cache != nil {
		positions = in.Cache.Positions
	}
	table := b.RotaryTable(positions, m.RotaryDims(), m.RotaryBase)
	rot := graph.Rotary{Heads: m.Heads, Dims: m.RotaryDims(), Layout: graph.PackedHeads}
	op := graph.Attention{Heads: m.Heads, Causal: true, Scale: nn.AttentionScale(m.D, m.Heads), Layout: graph.PackedHeads}
	var o *graph.Value
	if in.Cache != nil {
		rot.Offset = true
		qkv = b.Rotary(rot, qkv, table, in.Cache.At)
		o = m.cached(b, in.Cache, op, qkv, batch, t)
	} else {
		qkv = b.Rotary(rot, qkv, table)
		args := []*graph.Value{qkv}
		if in.Segments != nil {
			op.Segments = true
			args = append(args, in.Segments)
		}
		if in.Train && m.AttentionDropout > 0 {
			op.Drop, op.Seed, op.Stream = m.AttentionDropout, m.Seed, b.Stream()
			args = append(args, b.Input(graph.RunCounter, graph.T(graph.I32, 2)))
		}
		o = b.Attention(op, args...)
	}
	return nn.Linear(b, "dense", o, m.D, true, m.init())
}

// cached attends to the cache after the new keys and values were written to it.
func (m NeoX) cached(b *graph.Builder, c *Cache, op graph.Attention, qkv *graph.Value, batch, t int) *graph.Value {
	k := m.D / m.Heads
	heads := b.Reshape(qkv, batch, t, m.Heads, 3, k)
	part := func(i int) *graph.Value { return b.Reshape(b.Slice(heads, 3, i, 1), batch, t, m.D) }
	cache := func(name string, x *graph.Value) *graph.Value {
		s := b.State(&graph.State{Name: b.Path(name), Type: graph.T(graph.F32, batch, c.Positions, m.D), Role: graph.CacheRole})
		return b.Emit(graph.CacheWrite{}, s, x, c.At)[0]
	}
	op.Layout, op.Lens = graph.Separate, true
	return b.Attention(op, part(0), cache("key_cache", part(1)), cache("value_cache", part(2)), c.Lens)
}
