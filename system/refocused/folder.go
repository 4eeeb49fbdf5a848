package refocused

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
)

// resolve copies the architecture of the model folder, or of the run, to the configuration. Dropout is a
// training setting and stays as configured.
func resolve(c *config.Config, r *config.Report) {
	m := config.Of[Model](c)
	if m.Folder != "" && !system.FollowRun(c, r, &m.Folder, sections, "dropout", "attention_dropout", "init_std") {
		fromFolder(c, r, m)
	}
	if o, _ := c.Origin("model.activation"); o.Kind == config.Default && m.Architecture != gptNeoX {
		if err := c.Derive("model.activation", "silu", "model.architecture"); err != nil {
			r.Error("model.activation", "%v", err)
		}
	}
}

func fromFolder(c *config.Config, r *config.Report, m *Model) {
	f := system.ReadFolder(c, r, m.Folder)
	if f == nil {
		return
	}
	var facts []config.Fact
	var vocab int
	switch n := f.Model.(type) {
	case hf.NeoX:
		facts, vocab = neoxFacts(n), n.Vocab
	case hf.Llama:
		facts, vocab = llamaFacts(n, f.Type()), n.Vocab
	default:
		r.Error(system.FolderKey, "%s has a %s model, whose layers refocused does not have; want a gpt_neox, llama or qwen3 folder", m.Folder, f.Type())
		return
	}
	switch {
	case m.VocabSize == 0:
		m.VocabSize = vocab
	case !c.GivenWith("model.vocab_size", system.FolderKey): // otherwise the user wants to change the number of tokens
		facts = append(facts, config.Fact{Key: "model.vocab_size", Value: vocab})
	}
	r.Follow(system.FolderKey, hf.ConfigFile, facts)
}

func neoxFacts(n hf.NeoX) []config.Fact {
	return []config.Fact{
		{Key: "model.architecture", Value: gptNeoX},
		{Key: "model.d_model", Value: n.D}, {Key: "model.n_layers", Value: n.Layers}, {Key: "model.n_heads", Value: n.Heads},
		{Key: "model.d_ff", Value: n.FF}, {Key: "model.max_seq_len", Value: n.MaxPositions},
		{Key: "model.rotary_pct", Value: n.RotaryPct}, {Key: "model.rotary_base", Value: n.RotaryBase},
		{Key: "model.parallel_residual", Value: n.Parallel}, {Key: "model.activation", Value: activation(n.Activation)},
		{Key: "model.layer_norm_eps", Value: n.Eps}, {Key: "model.tie_embeddings", Value: n.Tied},
	}
}

func llamaFacts(n hf.Llama, kind string) []config.Fact {
	facts := []config.Fact{
		{Key: "model.architecture", Value: kind},
		{Key: "model.d_model", Value: n.D}, {Key: "model.n_layers", Value: n.Layers}, {Key: "model.n_heads", Value: n.Heads},
		{Key: "model.n_kv_heads", Value: n.KVHeads}, {Key: "model.head_dim", Value: n.HeadSize},
		{Key: "model.d_ff", Value: n.FF}, {Key: "model.max_seq_len", Value: n.MaxPositions},
		{Key: "model.activation", Value: activation(n.Activation)}, {Key: "model.layer_norm_eps", Value: n.Eps},
		{Key: "model.attention_bias", Value: n.AttentionBias}, {Key: "model.mlp_bias", Value: n.FFBias},
		{Key: "model.tie_embeddings", Value: n.Tied}, {Key: "model.rotary_base", Value: n.Rope.Base},
		{Key: "model.rope.type", Value: n.Rope.Kind},
	}
	rope := func(key string, value any) {
		facts = append(facts, config.Fact{Key: "model.rope." + key, Value: value})
	}
	if n.Rope.Kind != hf.RopeDefault {
		rope("factor", n.Rope.Factor)
	}
	switch n.Rope.Kind {
	case hf.RopeLlama3:
		rope("original_max_seq_len", n.Rope.Original)
		rope("low_freq_factor", n.Rope.LowFreq)
		rope("high_freq_factor", n.Rope.HighFreq)
	case hf.RopeYaRN:
		rope("original_max_seq_len", n.Rope.Original)
		rope("beta_fast", n.Rope.BetaFast)
		rope("beta_slow", n.Rope.BetaSlow)
		rope("attention_factor", n.Rope.Attention)
		rope("mscale", n.Rope.MScale)
		rope("mscale_all_dim", n.Rope.MScaleAll)
		rope("truncate", n.Rope.Whole)
	}
	return facts
}

// activation returns the configuration's name for an activation of a folder.
func activation(name string) string {
	if f, err := nn.Activation(name); err == nil && f == graph.FnGELUTanh {
		return "gelu_tanh"
	}
	return name
}
