package refocused

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
)

// fromFolder makes the architecture of the model folder that of the
// configuration. Dropout is how to train and stays as it is given.
func fromFolder(c *config.Config, r *config.Report) {
	m := config.Of[Model](c)
	if m.Folder == "" {
		return
	}
	f := system.ReadFolder(c, r, m.Folder)
	if f == nil {
		return
	}
	n, ok := f.Model.(hf.NeoX)
	if !ok {
		r.Error(system.FolderKey, "%s holds a %s model, whose layers refocused does not have; want a gpt_neox folder", m.Folder, f.Type())
		return
	}
	facts := []config.Fact{
		{Key: "model.d_model", Value: n.D}, {Key: "model.n_layers", Value: n.Layers}, {Key: "model.n_heads", Value: n.Heads},
		{Key: "model.d_ff", Value: n.FF}, {Key: "model.max_seq_len", Value: n.MaxPositions},
		{Key: "model.rotary_pct", Value: n.RotaryPct}, {Key: "model.rotary_base", Value: n.RotaryBase},
		{Key: "model.parallel_residual", Value: n.Parallel}, {Key: "model.activation", Value: activation(n.Activation)},
		{Key: "model.layer_norm_eps", Value: n.Eps}, {Key: "model.tie_embeddings", Value: n.Tied},
	}
	switch {
	case m.VocabSize == 0:
		m.VocabSize = n.Vocab
	case !c.GivenWith("model.vocab_size", system.FolderKey): // else its number of tokens is to be changed
		facts = append(facts, config.Fact{Key: "model.vocab_size", Value: n.Vocab})
	}
	r.Follow(system.FolderKey, hf.ConfigFile, facts)
}

// activation is the configuration's name for an activation of a folder.
func activation(name string) string {
	if f, err := nn.Activation(name); err == nil && f == graph.FnGELUTanh {
		return "gelu_tanh"
	}
	return name
}
