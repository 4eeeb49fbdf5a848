package agiformer

import (
	"errors"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/system/lm"
	"github.com/snug-ml/snug/train/checkpoint"
)

// generator loads the weights and the tokenizer of a checkpoint. Convolution,
// memory and experts look at the text as a whole: there is no cache, and each
// byte is computed from its window.
func generator(c *config.Config, dir string, on engine.Backend) (g *lm.Generator, err error) {
	t, err := token.LoadFolder(dir)
	if err != nil {
		return nil, err
	}
	w, err := safetensors.Open(filepath.Join(dir, checkpoint.WeightsFile))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	net, err := network(c)
	if err != nil {
		return nil, err
	}
	// Where one text is written there is no load to spread: nothing is dropped.
	net.Experts.Capacity = 0
	return lm.NewWhole(whole{net}, w, t, on)
}

// whole is the model as one to generate with.
type whole struct{ Net }

// Positions implements lm.Whole.
func (w whole) Positions() int { return w.MaxPositions }

// Load implements lm.Loader.
func (w whole) Load(r *engine.Executable) error { return w.load(r) }

// Logits implements lm.Whole.
func (w whole) Logits(b *graph.Builder, ids, last *graph.Value) *graph.Value {
	hidden := w.Forward(b, Input{IDs: ids}).Hidden
	return w.Net.Logits(b, b.Embedding(hidden, last))
}
