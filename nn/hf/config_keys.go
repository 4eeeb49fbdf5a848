package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/snug-ml/snug/internal/few"
)

// keys reads the keys of a config.json. The first error is kept.
type keys struct {
	all  map[string]json.RawMessage
	used map[string]bool
	// checked are keys of settled that the model does not read.
	checked []string
	err     error
}

func (k *keys) fail(format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf(format, args...)
	}
}

// take returns the value of a key; null counts as absent.
func (k *keys) take(name string) (json.RawMessage, bool) {
	k.used[name] = true
	raw, ok := k.all[name]
	return raw, ok && string(raw) != "null"
}

func (k *keys) decode(name string, raw json.RawMessage, into any, want string) {
	if err := json.Unmarshal(raw, into); err != nil {
		k.fail("%s: %s is not %s", name, few.Text(string(raw), 80), want)
	}
}

func read[T any](k *keys, name, want string, otherwise T) T {
	v := otherwise
	if raw, ok := k.take(name); ok {
		k.decode(name, raw, &v, want)
	}
	return v
}

func (k *keys) str(name, otherwise string) string { return read(k, name, "a string", otherwise) }
func (k *keys) flag(name string, otherwise bool) bool {
	return read(k, name, "true or false", otherwise)
}
func (k *keys) real(name string, otherwise float64) float64 {
	return read(k, name, "a number", otherwise)
}

// size reads a whole number that must be present.
func (k *keys) size(name string) int {
	if _, ok := k.take(name); !ok {
		k.fail("%s is missing", name)
	}
	return read(k, name, "a whole number", 0)
}

// share reads a probability.
func (k *keys) share(name string, otherwise float64) float64 {
	p := k.real(name, otherwise)
	if p < 0 || p >= 1 {
		k.fail("%s is %v, want a share from 0 to below 1", name, p)
	}
	return p
}

// above reads a number that must be positive.
func (k *keys) above(name string, otherwise float64) float64 {
	v := k.real(name, otherwise)
	if v <= 0 {
		k.fail("%s is %v, want more than 0", name, v)
	}
	return v
}

// id reads the number of a token. Some folders list several ends of a text: then it is
// the first.
func (k *keys) id(name string, otherwise int) int {
	raw, ok := k.take(name)
	if !ok {
		return otherwise
	}
	var several []int
	if json.Unmarshal(raw, &several) == nil && len(several) > 0 {
		return several[0]
	}
	v := 0
	k.decode(name, raw, &v, "the number of a token")
	return v
}

// labels reads id2label, or num_labels if there is none.
func (k *keys) labels() []string {
	n := read(k, "num_labels", "a whole number", 2)
	k.used["label2id"] = true // the inverse
	raw, ok := k.take("id2label")
	if !ok {
		if n < 0 || n > maxExtent {
			k.fail("num_labels is %d", n)
			return nil
		}
		labels := make([]string, n)
		for i := range labels {
			labels[i] = fmt.Sprintf("LABEL_%d", i)
		}
		return labels
	}
	names := map[string]string{}
	k.decode("id2label", raw, &names, "an object of numbers and names")
	labels := make([]string, len(names))
	for i := range labels {
		name, ok := names[strconv.Itoa(i)]
		if !ok {
			k.fail("id2label has %d labels, but none with the number %d", len(names), i)
			return nil
		}
		labels[i] = name
	}
	return labels
}

func (k *keys) neox() NeoX {
	m := NeoX{
		Vocab: k.size("vocab_size"), D: k.size("hidden_size"), Layers: k.size("num_hidden_layers"),
		Heads: k.size("num_attention_heads"), FF: k.size("intermediate_size"), MaxPositions: k.size("max_position_embeddings"),
		Parallel: k.flag("use_parallel_residual", true), Activation: k.str("hidden_act", "gelu"),
		Eps: k.above("layer_norm_eps", 1e-5), Tied: k.flag("tie_word_embeddings", false),
		InitStd: k.real("initializer_range", 0.02),
		Dropout: k.share("hidden_dropout", 0), AttentionDropout: k.share("attention_dropout", 0),
	}
	m.RotaryPct, m.RotaryBase = k.rotary()
	return m
}

// rotary reads which share of a head is rotated, and the base of the angles: version 5 of
// transformers has an object for them, earlier ones had keys.
func (k *keys) rotary() (pct, base float64) {
	pct = k.above("rotary_pct", k.above("partial_rotary_factor", 0.25))
	base = k.above("rotary_emb_base", k.above("rope_theta", 10000))
	raw, ok := k.take("rope_parameters")
	if !ok {
		return pct, base
	}
	in := &keys{used: map[string]bool{}}
	k.decode("rope_parameters", raw, &in.all, "an object")
	if kind := in.str("rope_type", "default"); kind != "default" {
		in.fail(`rope_type %q is not supported, "default" is`, kind)
	}
	pct, base = in.above("partial_rotary_factor", pct), in.above("rope_theta", base)
	for _, name := range slices.Sorted(maps.Keys(in.all)) {
		if !in.used[name] {
			in.fail("%s is not supported", name)
		}
	}
	if in.err != nil {
		k.fail("rope_parameters: %w", in.err)
	}
	return pct, base
}

func (k *keys) gpt2() GPT2 {
	m := GPT2{
		Vocab: k.size("vocab_size"), D: k.size("n_embd"), Layers: k.size("n_layer"), Heads: k.size("n_head"),
		MaxPositions: k.size("n_positions"), Activation: k.str("activation_function", "gelu_new"),
		Eps: k.above("layer_norm_epsilon", 1e-5), Untied: !k.flag("tie_word_embeddings", true),
		InitStd: k.real("initializer_range", 0.02), EmbedDropout: k.share("embd_pdrop", 0.1),
		Dropout: k.share("resid_pdrop", 0.1), AttentionDropout: k.share("attn_pdrop", 0.1),
	}
	m.FF = read(k, "n_inner", "a whole number", 4*m.D)
	return m
}

func (k *keys) bert(roberta bool) BERT {
	m := BERT{
		RoBERTa: roberta,
		Vocab:   k.size("vocab_size"), D: k.size("hidden_size"), Layers: k.size("num_hidden_layers"),
		Heads: k.size("num_attention_heads"), FF: k.size("intermediate_size"), MaxPositions: k.size("max_position_embeddings"),
		Types: read(k, "type_vocab_size", "a whole number", 2), Activation: k.str("hidden_act", "gelu"),
		Eps: k.above("layer_norm_eps", 1e-12), Untied: !k.flag("tie_word_embeddings", true),
		InitStd: k.real("initializer_range", 0.02), Dropout: k.share("hidden_dropout_prob", 0.1),
		AttentionDropout: k.share("attention_probs_dropout_prob", 0.1),
	}
	if roberta {
		m.Pad = k.id("pad_token_id", 1)
	} else {
		m.Pad = k.id("pad_token_id", 0)
	}
	m.ClassifierDropout = k.share("classifier_dropout", m.Dropout)
	return m
}

// settled are keys that could change what a model computes, with the values for which
// they do not (null never does).
var settled = map[string][]string{
	"is_decoder":                      {"false"},
	"is_encoder_decoder":              {"false"},
	"add_cross_attention":             {"false"},
	"position_embedding_type":         {`"absolute"`},
	"partial_rotary_factor":           {"1", "1.0"},
	"rope_interleaved":                {"false"},
	"use_sliding_window":              {"false"},
	"attention_bias":                  {"true"},
	"rope_scaling":                    {},
	"scale_attn_weights":              {"true"},
	"scale_attn_by_inverse_layer_idx": {"false"},
	"pruned_heads":                    {"{}"},
	"quantization_config":             {},
	"problem_type":                    {`"single_label_classification"`},
	"embedding_size":                  {},
}

// refuse reports settings that are not supported.
func (k *keys) refuse() {
	for _, name := range slices.Sorted(maps.Keys(settled)) {
		if k.used[name] {
			continue // the model reads it
		}
		k.checked = append(k.checked, name)
		raw, ok := k.take(name)
		if ok && !slices.Contains(settled[name], string(raw)) {
			want := "leaving it out"
			if len(settled[name]) > 0 {
				want = settled[name][0]
			}
			k.fail("%s: %s is not supported, %s is", name, few.Text(string(raw), 80), want)
		}
	}
}

// harmless are keys that do not change what a model computes: where things are
// stored, how texts are generated, what wrote the file.
var harmless = []string{
	"_attn_implementation_autoset", "_name_or_path", "_num_labels", "attn_implementation", "chunk_size_feed_forward",
	"directionality", "finetuning_task", "gradient_checkpointing", "layer_norm_type", "model_max_length", "n_ctx",
	"output_attentions", "output_hidden_states", "output_past", "pooler_fc_size", "pooler_num_attention_heads",
	"pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "reorder_and_upcast_attn", "return_dict",
	"sep_token_id", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
	"summary_use_proj", "task_specific_params", "tokenizer_class", "torchscript", "use_bfloat16", "use_cache",
	"vocab_size_multiple", "xla_device",
	// Llama and Qwen3: how sums are split, and windows that use_sliding_window turns on.
	"is_llama_config", "max_window_layers", "pretraining_tp", "sliding_window",
	// NeoX has a dropout for a head that is not supported here.
	"classifier_dropout",
	// A folder is read as it is stored, whatever these say.
	"dtype", "torch_dtype", "transformers_version",
}

// notKept are keys that Export itself writes.
var notKept = []string{"dtype", "torch_dtype", "transformers_version", "_name_or_path"}

// keep sorts out the keys that nothing has read.
func (k *keys) keep(c *Config) {
	for _, name := range slices.Sorted(maps.Keys(k.all)) {
		checked := slices.Contains(k.checked, name)
		if k.used[name] && !checked || slices.Contains(notKept, name) {
			continue
		}
		if c.Kept == nil {
			c.Kept = map[string]json.RawMessage{}
		}
		c.Kept[name] = k.all[name]
		if !checked && !slices.Contains(harmless, name) {
			c.Unknown = append(c.Unknown, name)
		}
	}
}
