package hf

import (
	"fmt"
	"math"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/nn"
)

// GPT2 is the GPT-2 causal language model (Radford et al. 2019): learned
// positions, norms before each branch, fused query-key-value, linear weights
// stored [in, out].
type GPT2 struct {
	Vocab, D, Layers, Heads, FF int
	MaxPositions                int
	Activation                  string
	Eps                         float64
	// Untied gives the output layer a weight of its own instead of the embedding.
	Untied  bool
	InitStd float64
	// EmbedDropout is applied to the embedding, Dropout to both branches of a
	// block, AttentionDropout to the attention weights. Seed is the run's.
	EmbedDropout, Dropout, AttentionDropout float64
	Seed                                    uint64
}

// Check reports sizes that do not make a model.
func (m GPT2) Check() error {
	if err := checkSizes(m.Vocab, m.D, m.Layers, m.Heads, m.FF, m.MaxPositions); err != nil {
		return err
	}
	return checkActivation(m.Activation)
}

// Positions is the longest sequence that the model takes.
func (m GPT2) Positions() int { return m.MaxPositions }

// Sizes are the weights of the model's matrices: the tables of tokens and
// positions, and the blocks. The rest is small.
func (m GPT2) Sizes() (tables, blocks float64) {
	return size.Float(m.Vocab, m.D) + size.Float(m.MaxPositions, m.D), blockSizes(m.Layers, m.D, m.FF)
}

// Dims are the sizes that all causal models have.
func (m GPT2) Dims() Dims { return Dims{m.Vocab, m.D, m.Layers} }

// WithLayers is the model with another number of blocks.
func (m GPT2) WithLayers(n int) Causal {
	m.Layers = n
	return m
}

func (m GPT2) init() graph.Init { return graph.Normal(m.InitStd) }

// initProjection returns smaller initial weights for layers whose results are added to the
// residual stream, by the number of additions (ibid. section 2.3).
func (m GPT2) initProjection() graph.Init {
	return graph.Normal(m.InitStd / math.Sqrt(2*float64(m.Layers)))
}

// Hidden is the model up to its final norm: [B, T, D].
func (m GPT2) Hidden(b *graph.Builder, in Input) (x *graph.Value) {
	in.check(b)
	if in.Types != nil {
		b.Failf("GPT-2 takes no token types")
	}
	b.Scope("transformer", func() {
		x = in.embed(b, "wte", m.Vocab, m.D, m.init())
		places := in.table(b, "wpe", m.MaxPositions, m.D, m.init())
		x = in.positions(b, places, x, 0)
		x = in.drop(b, x, m.EmbedDropout, m.Seed)
		b.Scope("h", func() {
			for i := range m.Layers {
				b.Block(fmt.Sprint(i), func() { x = m.block(b, in, x) })
			}
		})
		x = in.norm(b, "ln_f", x, m.Eps)
	})
	return x
}

// Output is the output layer's weight [Vocab, D], for the function that Hidden was built
// into; call it outside any scope.
func (m GPT2) Output(b *graph.Builder) *graph.Value {
	if m.Untied {
		return nn.Embedding(b, "lm_head", m.Vocab, m.D, m.init())
	}
	return b.State(b.StateValue("transformer.wte.weight").State)
}

// Logits returns the logits of the ids I32 [B, T] on a cache (nil for none): [B*T,
// Vocab].
func (m GPT2) Logits(b *graph.Builder, ids *graph.Value, c *nn.KVCache) *graph.Value {
	return causalLogits(b, m, Input{IDs: ids, Cache: c})
}

func (m GPT2) block(b *graph.Builder, in Input, x *graph.Value) *graph.Value {
	var y *graph.Value
	h := in.norm(b, "ln_1", x, m.Eps)
	b.Scope("attn", func() {
		op := graph.Attention{Heads: m.Heads, Causal: true, Scale: nn.AttentionScale(m.D, m.Heads), Layout: graph.PackedQKV}
		qkv := in.conv1d(b, "c_attn", h, 3*m.D, m.init())
		y = in.conv1d(b, "c_proj", in.attend(b, op, m.AttentionDropout, m.Seed, qkv), m.D, m.initProjection())
	})
	x = b.Add(x, in.drop(b, y, m.Dropout, m.Seed))
	h = in.norm(b, "ln_2", x, m.Eps)
	b.Scope("mlp", func() {
		up := b.Apply(activation(b, m.Activation), in.conv1d(b, "c_fc", h, m.FF, m.init()))
		y = in.conv1d(b, "c_proj", up, m.D, m.initProjection())
	})
	return b.Add(x, in.drop(b, y, m.Dropout, m.Seed))
}
