package hf

import (
	"errors"
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/size"
	"github.com/snug-ml/snug/nn"
)

// blockSizes returns the number of weights in the matrices of transformer blocks: four
// squares for attention, two for the feed-forward layer.
func blockSizes(layers, d, ff int) float64 {
	return 4*size.Float(layers, d, d) + 2*size.Float(layers, d, ff)
}

// Model is one of the architectures: [NeoX], [GPT2], [Llama] or [BERT].
type Model interface {
	// Check reports sizes that do not make a model.
	Check() error
	// Positions is the longest sequence that the model takes.
	Positions() int
	// Sizes are the weights of the model's matrices: its tables, which are not needed if
	// embeddings are passed in, and its blocks. The rest is small.
	Sizes() (tables, blocks float64)
	// Hidden is the last hidden state [B, T, D], without a head.
	Hidden(b *graph.Builder, in Input) *graph.Value
}

// Causal is a model that predicts the next token: [NeoX], [GPT2] or [Llama].
type Causal interface {
	Model
	// Output is the output layer's weight [Vocab, D], for the function that Hidden was
	// built into; call it outside any scope.
	Output(b *graph.Builder) *graph.Value
	// Dims are the sizes that all such models have.
	Dims() Dims
	// WithLayers is the model with another number of blocks.
	WithLayers(n int) Causal
}

// Dims are the sizes of a causal model: tokens, the width of the residual stream, blocks.
type Dims struct{ Vocab, Width, Layers int }

// causalLogits is the whole of a causal model: [B*T, Vocab].
func causalLogits(b *graph.Builder, m Causal, in Input) *graph.Value {
	h := m.Hidden(b, in)
	return b.Linear(b.Reshape(h, -1, h.Shape().Last()), m.Output(b), nil)
}

// Bounds on what a config.json may request: a graph is unrolled, so the number of layers
// costs work even where nothing is allocated.
const (
	maxLayers = 4096
	maxExtent = 1 << 24
)

func checkSizes(vocab, d, layers, heads, ff, positions int) error {
	if err := checkExtents(vocab, d, layers, heads, ff, positions); err != nil {
		return err
	}
	if d%heads != 0 {
		return wrong("n_heads", "width %d does not divide into %d heads", d, heads)
	}
	return nil
}

func checkExtents(vocab, d, layers, heads, ff, positions int) error {
	for _, s := range []struct {
		key, name string
		n, top    int
	}{
		{"vocab_size", "vocabulary", vocab, maxExtent}, {"d_model", "width", d, maxExtent}, {"n_layers", "number of layers", layers, maxLayers},
		{"n_heads", "number of heads", heads, maxExtent}, {"d_ff", "feed-forward width", ff, maxExtent}, {"max_seq_len", "number of positions", positions, maxExtent},
	} {
		if s.n < 1 || s.n > s.top {
			return wrong(s.key, "the %s is %d, want 1 to %d", s.name, s.n, s.top)
		}
	}
	return nil
}

// Wrong reports an invalid size of a model.
type Wrong struct {
	Key string // the setting, without its section
	error
}

func wrong(key, format string, args ...any) error { return &Wrong{key, fmt.Errorf(format, args...)} }

// KeyOf returns the setting in a section that an error of Check is about.
func KeyOf(section string, err error) string {
	if w, ok := errors.AsType[*Wrong](err); ok {
		return section + "." + w.Key
	}
	return section + ".d_model"
}

func checkActivation(name string) error {
	if _, err := nn.Activation(name); err != nil {
		return &Wrong{"activation", err}
	}
	return nil
}

func activation(b *graph.Builder, name string) graph.Fn {
	act, err := nn.Activation(name)
	if err != nil {
		b.Failf("%w", err)
	}
	return act
}
