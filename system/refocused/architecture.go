package refocused

import (
	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/nn/hf"
)

// These are the values of model.architecture, which equal those of model_type in config.json.
const (
	gptNeoX = "gpt_neox"
	llama   = "llama"
	qwen3   = "qwen3"
)

// network is an architecture that can be trained and can generate text.
type network interface {
	hf.Causal
	Logits(b *graph.Builder, ids *graph.Value, c *nn.KVCache) *graph.Value
}

// networkOf returns the configured architecture.
func networkOf(c *config.Config) network {
	if config.Of[Model](c).Architecture == gptNeoX {
		return neox(c)
	}
	return llamaOf(c)
}

func neox(c *config.Config) hf.NeoX {
	m := config.Of[Model](c)
	return hf.NeoX{
		Vocab: m.VocabSize, D: m.DModel, Layers: m.NLayers, Heads: m.NHeads, FF: m.DFF, MaxPositions: m.MaxSeqLen,
		RotaryPct: m.RotaryPct, RotaryBase: m.RotaryBase, Parallel: m.ParallelResidual, Activation: m.Activation,
		Eps: m.LayerNormEps, Tied: m.TieEmbeddings, InitStd: m.InitStd,
		Dropout: m.Dropout, AttentionDropout: m.AttentionDropout, Seed: c.Training.Seed,
	}
}

func llamaOf(c *config.Config) hf.Llama {
	m := config.Of[Model](c)
	net := hf.Llama{
		Vocab: m.VocabSize, D: m.DModel, Layers: m.NLayers, FF: m.DFF, Heads: m.NHeads, KVHeads: m.NKVHeads, HeadSize: m.HeadDim,
		MaxPositions: m.MaxSeqLen, Activation: m.Activation, Eps: m.LayerNormEps, QKNorm: m.Architecture == qwen3,
		AttentionBias: m.AttentionBias, FFBias: m.MLPBias, Tied: m.TieEmbeddings, InitStd: m.InitStd,
		Dropout: m.Dropout, AttentionDropout: m.AttentionDropout, Seed: c.Training.Seed,
		Rope: hf.Rope{Base: m.RotaryBase, Kind: m.Rope.Type},
	}
	if net.KVHeads == 0 {
		net.KVHeads = m.NHeads
	}
	if net.HeadSize == 0 {
		net.HeadSize = m.DModel / m.NHeads
	}
	r := &net.Rope
	if r.Kind != hf.RopeDefault {
		r.Factor = m.Rope.Factor
	}
	switch r.Kind {
	case hf.RopeLlama3:
		r.Original, r.LowFreq, r.HighFreq = m.Rope.Original, m.Rope.LowFreq, m.Rope.HighFreq
	case hf.RopeYaRN:
		r.Original, r.BetaFast, r.BetaSlow, r.Whole = m.Rope.Original, m.Rope.BetaFast, m.Rope.BetaSlow, m.Rope.Truncate
		r.Attention, r.MScale, r.MScaleAll = m.Rope.Attention, m.Rope.MScale, m.Rope.MScaleAll
	}
	return net
}

// foreign reports settings that the architecture does not use, unless they have their default values.
func foreign(m *Model, r *config.Report) {
	for _, s := range []struct {
		key    string
		given  bool
		others bool // the setting belongs to the architectures other than gpt_neox
	}{
		{"rotary_pct", m.RotaryPct != defaults.RotaryPct, false},
		{"parallel_residual", m.ParallelResidual != defaults.ParallelResidual, false},
		{"n_kv_heads", m.NKVHeads != 0, true},
		{"head_dim", m.HeadDim != 0, true},
		{"attention_bias", m.AttentionBias, true},
		{"mlp_bias", m.MLPBias, true},
		{"rope.type", m.Rope.Type != hf.RopeDefault, true},
	} {
		if s.given && s.others == (m.Architecture == gptNeoX) {
			want := "gpt_neox"
			if s.others {
				want = "llama and qwen3"
			}
			r.Error("model."+s.key, "model.architecture is %s, which has no such setting: it is one of %s", m.Architecture, want)
		}
	}
}
