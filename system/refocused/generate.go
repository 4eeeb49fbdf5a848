package refocused

import (
	"errors"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system/lm"
	"github.com/snug-ml/snug/train/checkpoint"
)

// generator loads the weights and the tokenizer of a checkpoint.
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
	// A model trained in bf16 has multiplied by rounded weights all along.
	store := graph.F32
	if c.Training.MixedPrecision == "bf16" {
		store = graph.BF16
	}
	return lm.New(net{neox(c)}, w, t, store, on)
}

// net is a NeoX as a language model to generate with.
type net struct{ hf.NeoX }

// Positions implements lm.Net.
func (n net) Positions() int { return n.MaxPositions }

// Logits implements lm.Net.
func (n net) Logits(b *graph.Builder, ids *graph.Value, c *hf.Cache) *graph.Value {
	h := n.Hidden(b, hf.Input{IDs: ids, Cache: c})
	return b.Linear(b.Reshape(h, ids.Shape()[1], n.D), n.Output(b), nil)
}
