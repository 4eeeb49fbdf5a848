package agiformer

import (
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/train/checkpoint"
)

// language is the model of a checkpoint. Convolution, memory and experts look at
// the text as a whole: there is no cache, and each byte is computed from its window.
func language(c *config.Config, dir string) (*inference.Language, error) {
	t, err := token.LoadFolder(dir)
	if err != nil {
		return nil, err
	}
	net, err := network(c)
	if err != nil {
		return nil, err
	}
	// Where one text is written there is no load to spread: nothing is dropped.
	net.Experts.Capacity = 0
	return &inference.Language{Uncached: whole{net}, Tokenizer: t, Weights: filepath.Join(dir, checkpoint.WeightsFile), Fill: net.load}, nil
}

// whole is the model as one to write with.
type whole struct{ Net }

// Positions implements inference.Uncached.
func (w whole) Positions() int { return w.MaxPositions }

// Logits implements inference.Uncached.
func (w whole) Logits(b *graph.Builder, ids, last *graph.Value) *graph.Value {
	hidden := w.Forward(b, Input{IDs: ids}).Hidden
	return w.Net.Logits(b, b.Embedding(hidden, last))
}
