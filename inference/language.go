package inference

import (
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// Language is a causal language model with the weights of a checkpoint.
type Language struct {
	// Cached is the graph of a model that can run on a key-value cache, Uncached that of
	// one that cannot; exactly one of them is set.
	Cached   Cached
	Uncached Uncached
	// Tokenizer is the codec between text and tokens.
	Tokenizer *token.Tokenizer
	// Weights is the path of the safetensors file with the model's weights.
	Weights string
	// Open, when set, opens the weights instead.
	Open func() (Weights, error)
	// Prompt, when set, returns the text that the model gets as a prompt to answer text.
	Prompt func(text string) (string, error)
	// Store is the format that matrices are kept in; arithmetic is float32.
	Store graph.DType
	// Fill, when set, fills in weights that are not trained and therefore missing from
	// Weights, before the others.
	Fill func(x *engine.Executable) error
	// Media, when set, describes what may accompany the text of an Uncached model.
	Media *Media
}

// Cached is a graph that computes new tokens on a cache of the earlier ones.
type Cached interface {
	// Logits returns the logits of the new tokens ids I32 [n, T]: [n*T, V].
	Logits(b *graph.Builder, ids *graph.Value, c *nn.KVCache) *graph.Value
	// Positions is the longest sequence the model was made for.
	Positions() int
}

// Uncached is a graph that reads the whole text for every token.
type Uncached interface {
	// Logits returns the logits of the token at position last I32 [1] of the ids I32 [1,
	// T]: [1, V].
	Logits(b *graph.Builder, ids, last *graph.Value) *graph.Value
	// Positions is the longest sequence the model was made for.
	Positions() int
}

// Positions is the longest sequence the model was made for.
func (l *Language) Positions() int {
	if l.Cached != nil {
		return l.Cached.Positions()
	}
	return l.Uncached.Positions()
}

func (l *Language) fill(x *engine.Executable) error {
	if l.Fill != nil {
		if err := l.Fill(x); err != nil {
			return err
		}
	}
	open := l.Open
	if open == nil {
		open = func() (Weights, error) { return safetensors.Open(l.Weights) }
	}
	return FillWeights(x, open)
}

// Weights are a model's weights by their names.
type Weights interface {
	Tensor(name string) (safetensors.Tensor, error)
	Has(name string) bool
	Close() error
}
