package hf

import (
	"maps"
	"slices"
)

func (k *keys) llama(qwen bool) Llama {
	m := Llama{
		Vocab: k.size("vocab_size"), D: k.size("hidden_size"), Layers: k.size("num_hidden_layers"),
		Heads: k.size("num_attention_heads"), FF: k.size("intermediate_size"), MaxPositions: k.size("max_position_embeddings"),
		Activation: k.str("hidden_act", "silu"), Eps: k.above("rms_norm_eps", 1e-6), QKNorm: qwen,
		AttentionBias: k.flag("attention_bias", false), Tied: k.flag("tie_word_embeddings", false),
		InitStd: k.real("initializer_range", 0.02), AttentionDropout: k.share("attention_dropout", 0),
	}
	head := 128
	if !qwen {
		m.FFBias = k.flag("mlp_bias", false)
		head = m.D / max(m.Heads, 1)
	}
	m.KVHeads = read(k, "num_key_value_heads", "a whole number", m.Heads)
	m.HeadSize = read(k, "head_dim", "a whole number", head)
	for i, kind := range read[[]string](k, "layer_types", "a list of names", nil) {
		if kind != "full_attention" {
			k.fail("layer_types: %q of layer %d is not supported, full_attention is", kind, i)
		}
	}
	m.Rope = k.rope(m.MaxPositions)
	return m
}

// rope reads the rotary positions: version 5 of transformers has rope_parameters, earlier
// ones rope_theta and, if angles are scaled, rope_scaling.
func (k *keys) rope(positions int) Rope {
	base := k.above("rope_theta", 10000)
	read := func(name string) (Rope, bool) {
		raw, ok := k.take(name)
		if !ok {
			return Rope{Base: base, Kind: RopeDefault}, false
		}
		in := &keys{used: map[string]bool{}}
		k.decode(name, raw, &in.all, "an object")
		r := in.ropeOf(base, positions)
		for _, key := range slices.Sorted(maps.Keys(in.all)) {
			if !in.used[key] {
				in.fail("%s is not supported for type %s", key, r.Kind)
			}
		}
		if in.err == nil {
			in.err = r.Check()
		}
		if in.err != nil {
			k.fail("%s: %w", name, in.err)
		}
		return r, true
	}
	old, given := read("rope_scaling")
	r, also := read("rope_parameters")
	switch {
	case given && also && old != r:
		k.fail("rope_scaling and rope_parameters differ: leave one of them out")
	case given:
		return old
	}
	return r
}

func (k *keys) ropeOf(base float64, positions int) Rope {
	r := Rope{Kind: k.str("rope_type", k.str("type", RopeDefault)), Base: k.above("rope_theta", base)}
	k.used["type"] = true
	if share := k.real("partial_rotary_factor", 1); share != 1 {
		k.fail("partial_rotary_factor is %v: only whole heads (1) are supported", share)
	}
	if r.Kind == RopeDefault {
		return r
	}
	r.Factor = k.real("factor", 0)
	switch r.Kind {
	case RopeLlama3:
		r.LowFreq, r.HighFreq = k.real("low_freq_factor", 0), k.real("high_freq_factor", 0)
		r.Original = k.size("original_max_position_embeddings")
	case RopeYaRN:
		r.Original = read(k, "original_max_position_embeddings", "a whole number", positions)
		if r.Factor == 0 && r.Original > 0 {
			r.Factor = float64(positions) / float64(r.Original)
		}
		r.BetaFast, r.BetaSlow = k.above("beta_fast", 32), k.above("beta_slow", 1)
		r.Attention, r.MScale, r.MScaleAll = k.real("attention_factor", 0), k.real("mscale", 0), k.real("mscale_all_dim", 0)
		r.Whole = k.flag("truncate", true)
	}
	return r
}

// keys returns the keys of config.json.
func (m Llama) keys() map[string]any {
	doc := map[string]any{
		"vocab_size": m.Vocab, "hidden_size": m.D, "num_hidden_layers": m.Layers, "num_attention_heads": m.Heads,
		"num_key_value_heads": m.KVHeads, "head_dim": m.HeadSize, "intermediate_size": m.FF,
		"max_position_embeddings": m.MaxPositions, "hidden_act": activationName(m.Activation), "rms_norm_eps": m.Eps,
		"attention_bias": m.AttentionBias, "tie_word_embeddings": m.Tied, "initializer_range": m.InitStd,
		"attention_dropout": m.AttentionDropout,
	}
	if m.QKNorm {
		doc["use_sliding_window"] = false
	} else {
		doc["mlp_bias"] = m.FFBias
	}
	// The older keys as well as the newer one: each version reads its own.
	doc["rope_theta"], doc["rope_scaling"] = m.Rope.Base, nil
	rope := m.Rope.keys()
	if m.Rope.Kind != RopeDefault {
		doc["rope_scaling"] = rope
	}
	rope = maps.Clone(rope)
	rope["rope_theta"] = m.Rope.Base
	doc["rope_parameters"] = rope
	return doc
}

// keys returns the keys of rope_scaling.
func (r Rope) keys() map[string]any {
	doc := map[string]any{"rope_type": r.Kind}
	if r.Kind != RopeDefault {
		doc["factor"] = r.Factor
	}
	switch r.Kind {
	case RopeLlama3:
		doc["low_freq_factor"], doc["high_freq_factor"] = r.LowFreq, r.HighFreq
		doc["original_max_position_embeddings"] = r.Original
	case RopeYaRN:
		doc["original_max_position_embeddings"] = r.Original
		doc["beta_fast"], doc["beta_slow"], doc["truncate"] = r.BetaFast, r.BetaSlow, r.Whole
		for key, v := range map[string]float64{"attention_factor": r.Attention, "mscale": r.MScale, "mscale_all_dim": r.MScaleAll} {
			if v != 0 {
				doc[key] = v
			}
		}
	}
	return doc
}
