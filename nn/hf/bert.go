package hf

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/nn"
)

// BERT is the encoder of BERT (Devlin et al. 2019) and of RoBERTa (Liu et al.
// 2019), which differ in the names of the weights, the rows of the position
// table and the heads. Norms follow each branch.
type BERT struct {
	// RoBERTa selects RoBERTa's names, positions and heads.
	RoBERTa                     bool
	Vocab, D, Layers, Heads, FF int
	// MaxPositions are the rows of the position table, Types those of the token
	// type table.
	MaxPositions, Types int
	// Pad is the id of padding. RoBERTa's first id is at row Pad+1 of the position table.
	// Implementations that count only ids other than Pad give row Pad to padding; here
	// padding is counted like other ids, unless [Input.Positions] says otherwise, which
	// changes nothing for the ids that Lens keeps.
	Pad        int
	Activation string
	Eps        float64
	// Untied gives the masked language model head a weight of its own.
	Untied bool
	// Labels are the classes of the sequence classification head.
	Labels  int
	InitStd float64
	// Dropout is applied to the embedding and to both branches of a layer,
	// AttentionDropout to the attention weights, ClassifierDropout within the
	// classification head. Seed is the run's.
	Dropout, AttentionDropout, ClassifierDropout float64
	Seed                                         uint64
}

// Check reports sizes that do not make a model.
func (m BERT) Check() error {
	if err := checkSizes(m.Vocab, m.D, m.Layers, m.Heads, m.FF, m.MaxPositions); err != nil {
		return err
	}
	if m.Types < 1 || m.Types > maxExtent {
		return wrong("token_types", "the number of token types is %d, want 1 to %d", m.Types, maxExtent)
	}
	if m.Labels < 0 || m.Labels > maxExtent {
		return fmt.Errorf("the number of labels is %d, want 0 to %d", m.Labels, maxExtent)
	}
	if m.RoBERTa && (m.Pad < 0 || m.Pad >= m.Vocab || m.Positions() < 1) {
		return wrong("pad_id", "the padding id %d leaves no position of %d, or is outside the vocabulary of %d", m.Pad, m.MaxPositions, m.Vocab)
	}
	return checkActivation(m.Activation)
}

// Positions is the longest sequence that the model takes.
func (m BERT) Positions() int { return m.MaxPositions - m.first() }

// first is the row of the position table of a sequence's first id.
func (m BERT) first() int {
	if m.RoBERTa {
		return m.Pad + 1
	}
	return 0
}

// base is the scope of the encoder.
func (m BERT) base() string {
	if m.RoBERTa {
		return "roberta"
	}
	return "bert"
}

// Sizes are the weights of the encoder's matrices: the tables of tokens,
// positions and types, and the blocks. The rest is small.
func (m BERT) Sizes() (tables, blocks float64) {
	return size.Float(m.Vocab, m.D) + size.Float(m.MaxPositions, m.D) + size.Float(m.Types, m.D), blockSizes(m.Layers, m.D, m.FF)
}

func (m BERT) init() graph.Init { return graph.Normal(m.InitStd) }

// Hidden is the encoder's last hidden state: [B, T, D].
func (m BERT) Hidden(b *graph.Builder, in Input) (x *graph.Value) {
	in.check(b)
	if in.Embeds != nil {
		b.Failf("an encoder takes ids, not embeddings")
	}
	if in.Cache != nil {
		b.Failf("an encoder sees the whole text at once: it has no cache")
	}
	b.Scope(m.base(), func() {
		b.Scope("embeddings", func() { x = m.embed(b, in) })
		b.Scope("encoder", func() {
			b.Scope("layer", func() {
				for i := range m.Layers {
					b.Block(fmt.Sprint(i), func() { x = m.layer(b, in, x) })
				}
			})
		})
	})
	return x
}

func (m BERT) embed(b *graph.Builder, in Input) *graph.Value {
	words := in.table(b, "word_embeddings", m.Vocab, m.D, m.init())
	places := in.table(b, "position_embeddings", m.MaxPositions, m.D, m.init())
	types := in.table(b, "token_type_embeddings", m.Types, m.D, m.init())
	x := b.Embedding(words, in.IDs)
	if in.Types != nil {
		x = b.Add(x, b.Embedding(types, in.Types))
	} else {
		x = b.Add(x, b.Slice(types, 0, 0, 1))
	}
	x = in.positions(b, places, x, m.first())
	return in.drop(b, in.norm(b, "LayerNorm", x, m.Eps), m.Dropout, m.Seed)
}

func (m BERT) layer(b *graph.Builder, in Input, x *graph.Value) *graph.Value {
	op := graph.Attention{Heads: m.Heads, Scale: nn.AttentionScale(m.D, m.Heads), Layout: graph.Separate}
	var o, h *graph.Value
	b.Scope("attention", func() {
		b.Scope("self", func() {
			if qkv, ok := in.abreast(b, x, m.D, m.init(), "query", "key", "value"); ok {
				op.Layout = graph.PackedQKV
				o = in.attend(b, op, m.AttentionDropout, m.Seed, qkv)
				return
			}
			q := in.linear(b, "query", x, m.D, m.init())
			k := in.linear(b, "key", x, m.D, m.init())
			v := in.linear(b, "value", x, m.D, m.init())
			o = in.attend(b, op, m.AttentionDropout, m.Seed, q, k, v)
		})
		x = m.add(b, in, o, x)
	})
	b.Scope("intermediate", func() {
		h = b.Apply(activation(b, m.Activation), in.linear(b, "dense", x, m.FF, m.init()))
	})
	return m.add(b, in, h, x)
}

// add completes a branch: LayerNorm(x + dropout(dense(h))).
func (m BERT) add(b *graph.Builder, in Input, h, x *graph.Value) (y *graph.Value) {
	b.Scope("output", func() {
		y = in.drop(b, in.linear(b, "dense", h, m.D, m.init()), m.Dropout, m.Seed)
		y = in.norm(b, "LayerNorm", b.Add(y, x), m.Eps)
	})
	return y
}

// firstToken returns the first token of each row of h [B, T, D]: [B, D].
func firstToken(b *graph.Builder, h *graph.Value) *graph.Value {
	return b.Reshape(b.Slice(h, 1, 0, 1), h.Shape()[0], h.Shape()[2])
}

// Pooled is tanh of a dense layer over the first token of h [B, T, D]: [B, D].
func (m BERT) Pooled(b *graph.Builder, in Input, h *graph.Value) (p *graph.Value) {
	b.Scope(m.base(), func() {
		b.Scope("pooler", func() {
			p = b.Tanh(in.linear(b, "dense", firstToken(b, h), m.D, m.init()))
		})
	})
	return p
}

// Classify is the sequence classification head on h [B, T, D]: logits
// [B, Labels]. BERT's is a linear layer over [BERT.Pooled], RoBERTa's two over
// the first token.
func (m BERT) Classify(b *graph.Builder, in Input, h *graph.Value) (y *graph.Value) {
	if m.Labels < 1 {
		b.Failf("a classifier wants labels, the model has %d", m.Labels)
	}
	drop := func(x *graph.Value) *graph.Value { return in.drop(b, x, m.ClassifierDropout, m.Seed) }
	if !m.RoBERTa {
		x := drop(m.Pooled(b, in, h))
		b.As(graph.Outer, func() { y = in.linear(b, "classifier", x, m.Labels, m.init()) })
		return y
	}
	b.Scope("classifier", func() {
		x := b.Tanh(in.linear(b, "dense", drop(firstToken(b, h)), m.D, m.init()))
		x = drop(x)
		b.As(graph.Outer, func() { y = in.linear(b, "out_proj", x, m.Labels, m.init()) })
	})
	return y
}

// MaskedLogits is the masked language model head on rows of hidden states
// h [..., D]: logits [N, Vocab], one row for each of h.
func (m BERT) MaskedLogits(b *graph.Builder, in Input, h *graph.Value) (y *graph.Value) {
	head := func(dense, norm, act string) {
		x := b.Apply(activation(b, act), in.linear(b, dense, b.Reshape(h, -1, m.D), m.D, m.init()))
		x = in.norm(b, norm, x, m.Eps)
		w := b.StateValue(m.base() + ".embeddings.word_embeddings.weight")
		if m.Untied {
			w = in.table(b, "decoder", m.Vocab, m.D, m.init())
		}
		bias := b.Param("bias", graph.Zeros(), m.Vocab)
		in.freeze(b, "bias")
		y = b.Linear(x, w, bias)
	}
	if m.RoBERTa {
		b.Scope("lm_head", func() { head("dense", "layer_norm", "gelu") })
		return y
	}
	b.Scope("cls", func() {
		b.Scope("predictions", func() { head("transform.dense", "transform.LayerNorm", m.Activation) })
	})
	return y
}
