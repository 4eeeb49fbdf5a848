package agiformer

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// Net is the architecture: sizes, with methods that add to a graph.
type Net struct {
	Vocab, D, Layers, Heads, FF int
	MaxPositions                int
	// Kernel is the width of the front end's convolution.
	Kernel int
	// Rotary selects rotary positions with base RotaryBase, instead of learned ones.
	Rotary     bool
	RotaryBase float64
	Experts    Experts
	// Memory and Introspection are nil if the model has none.
	Memory        *nn.Memory
	Introspection *Introspection
	// Language is what language experts read; nil without such experts.
	Language *Language
	// Senses is nil for text alone.
	Senses *Senses
	Eps    float64
	// Dropout applies to the embedding, branches and attention weights. Seed is the run's.
	Dropout float64
	Seed    uint64
}

// Input is the input of the model.
type Input struct {
	IDs *graph.Value // I32 [B, T]
	// Train enables dropout.
	Train bool
	// Seen holds the media that come with the text.
	Seen Seen
}

// Output is the model's output for each of the N = B*T tokens.
type Output struct {
	// Hidden [N, D] is the state that the output layer reads.
	Hidden *graph.Value
	// Layers are the routings of the blocks.
	Layers []*nn.Routed
	// Memory holds the gates, or is empty without memory.
	Memory nn.Remembered
	// Self is the output of introspection, or nil without it.
	Self *Self
}

// forward is a forward half under construction.
type forward struct {
	Net
	*graph.Builder
	in          Input
	batch, time int
	table       *graph.Value // table of rotary positions
	language    *graph.Value // F32 [N, width], which language experts read
}

// Forward builds the model up to its final norm.
func (m Net) Forward(b *graph.Builder, in Input) (out Output) {
	s := in.IDs.Shape()
	if len(s) != 2 {
		b.Failf("ids are %v, want [B, T]", in.IDs.Type)
	}
	if s[1] > m.MaxPositions {
		b.Failf("%d tokens are too many: the model has %d positions", s[1], m.MaxPositions)
	}
	p := &forward{Net: m, Builder: b, in: in, batch: s[0], time: s[1]}
	if m.Rotary {
		p.table = b.RotaryTable(p.time, m.D/m.Heads, m.RotaryBase)
	}
	var x *graph.Value
	b.Block("front", func() { x = p.front() })
	if m.Memory != nil {
		b.Block("memory", func() { x, out.Memory = m.Memory.Read(b, x) })
	}
	if !in.Seen.nothing() {
		b.Block("senses", func() { x = p.fuse(x) })
	}
	if m.Language != nil {
		b.Scope("language", func() { p.language = b.Reshape(m.Language.read(p, x), p.batch*p.time, -1) })
	}
	earlier := []*graph.Value{x}
	b.Scope("blocks", func() {
		for i := range m.Layers {
			b.Block(fmt.Sprint(i), func() {
				y, routed := p.block(x)
				x = y
				out.Layers = append(out.Layers, routed)
			})
			earlier = append(earlier, x)
		}
	})
	if m.Introspection != nil {
		b.Block("introspection", func() { x, out.Self = p.introspect(x, earlier[:len(earlier)-1]) })
	}
	out.Hidden = b.Reshape(p.norm("final_norm", x), p.batch*p.time, m.D)
	return out
}

// Logits returns the output layer's logits for hidden states [N, D]: [N, Vocab].
func (m Net) Logits(b *graph.Builder, hidden *graph.Value) *graph.Value {
	return scoresOf(b, hidden, m.output(b))
}

// scoresOf returns hidden w^T in float32, whatever the precision of the matmuls.
func scoresOf(b *graph.Builder, hidden, w *graph.Value) *graph.Value {
	return b.Emit(graph.MatMul{TransB: true, Out: graph.F32}, hidden, w)[0]
}

// output returns the output layer's weight.
func (m Net) output(b *graph.Builder) *graph.Value {
	return nn.Embedding(b, "output", m.Vocab, m.D, graph.XavierUniform(m.D, m.Vocab))
}

// front is the byte front end: an embedding, and a convolution over the last few bytes, which combines them
// into words.
func (p *forward) front() *graph.Value {
	table := nn.Embedding(p.Builder, "embedding", p.Vocab, p.D, graph.Normal(1))
	x := p.drop(p.Embedding(table, p.in.IDs))
	x = nn.CausalConv(p.Builder, "convolution", x, p.D, p.Kernel, graph.XavierUniform(p.Kernel*p.D, p.Kernel*p.D))
	x = p.drop(p.GELU(p.norm("convolution_norm", x)))
	x = p.norm("norm", p.linear("dense", x, p.D, true))
	if !p.Net.Rotary {
		places := nn.Embedding(p.Builder, "positions", p.MaxPositions, p.D, graph.Normal(0.1))
		x = p.Add(x, p.Slice(places, 0, 0, p.time))
	}
	return x
}

func (p *forward) block(x *graph.Value) (*graph.Value, *nn.Routed) {
	x = p.Add(x, p.drop(p.attention("attention", p.norm("attention_norm", x))))
	y, routed := p.mixture(p.norm("experts_norm", x))
	return p.Add(x, p.drop(y)), routed
}

// attention is causal self-attention over h [B, T, D] without biases.
func (p *forward) attention(name string, h *graph.Value) (y *graph.Value) {
	p.Scope(name, func() {
		qkv := p.linear("query_key_value", h, 3*p.D, false)
		if p.table != nil {
			qkv = p.Builder.Rotary(graph.Rotary{Heads: p.Heads, Dims: p.D / p.Heads, Layout: graph.PackedQKV}, qkv, p.table)
		}
		y = p.linear("dense", p.attend(graph.Attention{Layout: graph.PackedQKV}, qkv), p.D, false)
	})
	return y
}

// attend completes op, making it causal, with the model's heads and dropout.
func (p *forward) attend(op graph.Attention, in ...*graph.Value) *graph.Value {
	op.Heads, op.Causal, op.Scale = p.Heads, true, nn.AttentionScale(p.D, p.Heads)
	if p.in.Train && p.Net.Dropout > 0 {
		op.Drop, op.Seed, op.Stream = p.Net.Dropout, p.Seed, p.Stream()
		in = append(in, p.Input(graph.RunCounter, graph.T(graph.I32, 2)))
	}
	return p.Attention(op, in...)
}

func (p *forward) norm(name string, x *graph.Value) *graph.Value {
	return nn.LayerNorm(p.Builder, name, x, p.Eps)
}

func (p *forward) linear(name string, x *graph.Value, out int, bias bool) *graph.Value {
	return nn.Linear(p.Builder, name, x, out, bias, graph.XavierUniform(x.Shape().Last(), out))
}

// drop applies dropout while training.
func (p *forward) drop(x *graph.Value) *graph.Value {
	if !p.in.Train {
		return x
	}
	return p.Builder.Dropout(x, p.Net.Dropout, p.Seed)
}
