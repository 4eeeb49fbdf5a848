package hf

import (
	"fmt"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// Model is one of the architectures: [NeoX], [GPT2] or [BERT].
type Model interface {
	// Check reports sizes that make no model.
	Check() error
	// Positions is the longest sequence that the model takes.
	Positions() int
	// Hidden is the last hidden state [B, T, D], without a head.
	Hidden(b *graph.Builder, in Input) *graph.Value
}

// Causal is a model that predicts the next token: [NeoX] or [GPT2].
type Causal interface {
	Model
	// Output is the output layer's weight [Vocab, D], for the function that
	// Hidden was built into; call it outside of any scope.
	Output(b *graph.Builder) *graph.Value
}

// causalLogits is the whole of a causal model: [B*T, Vocab].
func causalLogits(b *graph.Builder, m Causal, in Input) *graph.Value {
	h := m.Hidden(b, in)
	return b.Linear(b.Reshape(h, -1, h.Shape().Last()), m.Output(b), nil)
}

// Bounds on what a config.json may ask for: a graph is unrolled, so the number
// of layers is work even where nothing is allocated.
const (
	maxLayers = 4096
	maxExtent = 1 << 24
)

func checkSizes(vocab, d, layers, heads, ff, positions int) error {
	for _, s := range []struct {
		name   string
		n, top int
	}{
		{"vocabulary", vocab, maxExtent}, {"width", d, maxExtent}, {"number of layers", layers, maxLayers},
		{"number of heads", heads, maxExtent}, {"feed-forward width", ff, maxExtent}, {"number of positions", positions, maxExtent},
	} {
		if s.n < 1 || s.n > s.top {
			return fmt.Errorf("the %s is %d, want 1 to %d", s.name, s.n, s.top)
		}
	}
	if d%heads != 0 {
		return fmt.Errorf("width %d does not divide into %d heads", d, heads)
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
