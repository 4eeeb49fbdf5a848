package hf

import (
	"bytes"
	"encoding/json"
	"maps"
	"strconv"
)

// JSON returns the text of the model's config.json, as transformers 4 and 5 read it.
func (c *Config) JSON() ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	f := c.family()
	doc := map[string]any{}
	for name, raw := range c.Kept {
		doc[name] = raw
	}
	maps.Copy(doc, c.sizes())
	doc["model_type"] = f.kind
	doc["architectures"] = []string{f.heads[c.Head]}
	doc["torch_dtype"] = "float32" // transformers 5 calls it dtype, and knows this name
	for name, id := range map[string]int{"bos_token_id": c.BOS, "eos_token_id": c.EOS, "pad_token_id": c.Pad} {
		doc[name] = nil
		if id >= 0 {
			doc[name] = id
		}
	}
	if c.Head == HeadClassifier {
		names, ids := map[string]string{}, map[string]int{}
		for i, label := range c.Labels {
			names[strconv.Itoa(i)] = label
			ids[label] = i
		}
		doc["id2label"], doc["label2id"] = names, ids
	}
	return indented(doc)
}

// indented returns readable JSON: two spaces per level, no escapes for HTML.
func indented(doc any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(doc)
	return b.Bytes(), err
}

// sizes returns the keys of the model itself.
func (c *Config) sizes() map[string]any {
	switch m := c.Model.(type) {
	case NeoX:
		return map[string]any{
			"vocab_size": m.Vocab, "hidden_size": m.D, "num_hidden_layers": m.Layers, "num_attention_heads": m.Heads,
			"intermediate_size": m.FF, "max_position_embeddings": m.MaxPositions, "hidden_act": activationName(m.Activation),
			"use_parallel_residual": m.Parallel, "layer_norm_eps": m.Eps, "tie_word_embeddings": m.Tied,
			"initializer_range": m.InitStd, "hidden_dropout": m.Dropout, "attention_dropout": m.AttentionDropout,
			// The older keys as well as the newer ones: each version reads its own.
			"rotary_pct": m.RotaryPct, "rotary_emb_base": m.RotaryBase,
			"rope_parameters": map[string]any{
				"rope_type": "default", "rope_theta": m.RotaryBase, "partial_rotary_factor": m.RotaryPct,
			},
		}
	case GPT2:
		return map[string]any{
			"vocab_size": m.Vocab, "n_embd": m.D, "n_layer": m.Layers, "n_head": m.Heads, "n_inner": m.FF,
			"n_positions": m.MaxPositions, "activation_function": activationName(m.Activation),
			"layer_norm_epsilon": m.Eps, "tie_word_embeddings": !m.Untied, "initializer_range": m.InitStd,
			"embd_pdrop": m.EmbedDropout, "resid_pdrop": m.Dropout, "attn_pdrop": m.AttentionDropout,
		}
	case Llama:
		return m.keys()
	case BERT:
		return map[string]any{
			"vocab_size": m.Vocab, "hidden_size": m.D, "num_hidden_layers": m.Layers, "num_attention_heads": m.Heads,
			"intermediate_size": m.FF, "max_position_embeddings": m.MaxPositions, "type_vocab_size": m.Types,
			"hidden_act": activationName(m.Activation), "layer_norm_eps": m.Eps, "tie_word_embeddings": !m.Untied,
			"initializer_range": m.InitStd, "hidden_dropout_prob": m.Dropout,
			"attention_probs_dropout_prob": m.AttentionDropout, "classifier_dropout": m.ClassifierDropout,
		}
	}
	return nil
}

// activationName returns transformers' name for an activation.
func activationName(name string) string {
	if name == "gelu_tanh" {
		return "gelu_pytorch_tanh"
	}
	return name
}
