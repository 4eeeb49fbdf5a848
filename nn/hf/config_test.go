package hf

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadConfig(t *testing.T) {
	for name, want := range map[string]Config{
		"neox": {Model: NeoX{Vocab: 150, D: 32, Layers: 2, Heads: 2, FF: 64, MaxPositions: 32, RotaryPct: .25, RotaryBase: 10000,
			Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: .2}, Head: HeadCausal, BOS: 0, EOS: 2, Pad: -1},
		"neox-old": {Model: NeoX{Vocab: 150, D: 32, Layers: 2, Heads: 2, FF: 64, MaxPositions: 32, RotaryPct: .5, RotaryBase: 10000,
			Activation: "gelu_new", Eps: 1e-5, InitStd: .2}, Head: HeadCausal, BOS: 0, EOS: 2, Pad: -1},
		"gpt2": {Model: GPT2{Vocab: 150, D: 32, Layers: 2, Heads: 4, FF: 128, MaxPositions: 32, Activation: "gelu_new", Eps: 1e-5,
			InitStd: .2, EmbedDropout: .1, Dropout: .1, AttentionDropout: .1}, Head: HeadCausal, BOS: 2, EOS: 2, Pad: -1},
		"llama": {Model: Llama{Vocab: 150, D: 32, Layers: 2, FF: 48, Heads: 4, KVHeads: 2, HeadSize: 8, MaxPositions: 32,
			Rope:       Rope{Base: 500000, Kind: RopeLlama3, Factor: 4, Original: 8, LowFreq: 1, HighFreq: 4},
			Activation: "silu", Eps: 1e-6, InitStd: .2}, Head: HeadCausal, BOS: 1, EOS: 2, Pad: -1},
		"qwen3": {Model: Llama{Vocab: 150, D: 32, Layers: 2, FF: 48, Heads: 4, KVHeads: 2, HeadSize: 16, MaxPositions: 32,
			Rope: Rope{Base: 1e6, Kind: RopeDefault}, Activation: "silu", Eps: 1e-6, QKNorm: true, Tied: true, InitStd: .2},
			Head: HeadCausal, BOS: -1, EOS: -1, Pad: -1},
		"roberta-classifier": {Model: BERT{RoBERTa: true, Vocab: 150, D: 32, Layers: 2, Heads: 4, FF: 64, MaxPositions: 34, Types: 1,
			Pad: 1, Activation: "gelu", Eps: 1e-5, Labels: 3, InitStd: .2, Dropout: .1, AttentionDropout: .1, ClassifierDropout: .1},
			Head: HeadClassifier, Labels: []string{"clean", "offensive", "unsure"}, BOS: 0, EOS: 2, Pad: 1},
	} {
		got, err := ReadConfig(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Unknown) > 0 {
			t.Errorf("%s: keys of transformers' own configs are unknown: %v", name, got.Unknown)
		}
		got.Kept = nil
		if d := cmp.Diff(want, *got); d != "" {
			t.Errorf("%s: (- want, + got)\n%s", name, d)
		}
	}
}

// changed is a folder's config.json with keys set, or removed where the value is "".
func changed(t testing.TB, folder string, keys map[string]string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", folder, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	doc := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for k, v := range keys {
		if v == "" {
			delete(doc, k)
		} else {
			doc[k] = json.RawMessage(v)
		}
	}
	text, err = json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestConfigRefusals(t *testing.T) {
	for _, c := range []struct{ folder, key, value, want string }{
		{"neox", "model_type", `"mamba"`, `model_type "mamba" is not supported: gpt_neox, gpt2, llama, qwen3, bert and roberta are`},
		{"neox", "model_type", "", "model_type is missing"},
		{"neox", "hidden_size", "", "hidden_size is missing"},
		{"neox", "hidden_size", "33", "width 33 does not divide into 2 heads"},
		{"neox", "hidden_size", `"32"`, `hidden_size: "32" is not a whole number`},
		{"neox", "num_hidden_layers", "1000000000", "the number of layers is 1000000000, want 1 to 4096"},
		{"neox", "vocab_size", "-1", "the vocabulary is -1"},
		{"neox", "vocab_size", "1e99", "vocab_size: 1e99 is not a whole number"},
		{"neox", "hidden_act", `"relu6"`, `unknown activation "relu6"`},
		{"neox", "attention_bias", "false", "attention_bias: false is not supported, true is"},
		{"neox", "rope_scaling", `{"type":"linear","factor":2}`, "rope_scaling: "},
		{"neox", "rope_parameters", `{"rope_type":"yarn"}`, `rope_parameters: rope_type "yarn" is not supported`},
		{"neox", "rope_parameters", `{"rope_type":"default","factor":4}`, "rope_parameters: factor is not supported"},
		{"neox", "rope_parameters", `{"partial_rotary_factor":0.01}`, "gives 0 rotated dimensions"},
		{"neox", "rope_parameters", `[]`, "rope_parameters: [] is not an object"},
		{"neox", "architectures", `["GPTNeoXForTokenClassification"]`, `"GPTNeoXForTokenClassification" is not supported: GPTNeoXModel, GPTNeoXForCausalLM are`},
		{"neox", "architectures", `["GPTNeoXModel","GPTNeoXForCausalLM"]`, "names 2 classes"},
		{"neox", "quantization_config", `{"bits":4}`, "quantization_config: "},
		{"neox", "layer_norm_eps", "0", "layer_norm_eps is 0, want more than 0"},
		{"gpt2", "scale_attn_weights", "false", "scale_attn_weights: false is not supported"},
		{"gpt2", "scale_attn_by_inverse_layer_idx", "true", "scale_attn_by_inverse_layer_idx: true is not supported"},
		{"gpt2", "attn_pdrop", "1", "attn_pdrop is 1"},
		{"gpt2", "n_inner", "[]", "n_inner: [] is not a whole number"},
		{"bert", "position_embedding_type", `"relative_key"`, `position_embedding_type: "relative_key" is not supported, "absolute" is`},
		{"bert", "is_decoder", "true", "is_decoder: true is not supported, false is"},
		{"bert-classifier", "problem_type", `"regression"`, "problem_type: "},
		{"bert-classifier", "id2label", `{"0":"a","2":"b"}`, "id2label has 2 labels, but none with the number 1"},
		{"bert-classifier", "id2label", `{}`, "the model has 0 labels"},
		{"roberta", "pad_token_id", "33", "the padding id 33 leaves no position of 34"},
		{"roberta", "type_vocab_size", "0", "the number of token types is 0"},
	} {
		_, err := ParseConfig(changed(t, c.folder, map[string]string{c.key: c.value}))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s %s: got %v, want an error with %q", c.folder, c.key, c.value, err, c.want)
		}
	}
	if _, err := ReadConfig(t.TempDir()); err == nil || !strings.Contains(err.Error(), "is not a model folder") {
		t.Errorf("an empty folder: %v", err)
	}
}

// Output of earlier versions of transformers, and possible manual additions.
func TestConfigDialects(t *testing.T) {
	c, err := ParseConfig(changed(t, "bert-classifier", map[string]string{
		"id2label": "", "num_labels": "4", "position_embedding_type": `"absolute"`, "hidden_act": `"relu"`, "classifier_dropout": "0.3",
		"eos_token_id": "[7, 8]", "my_note": `"x"`, "task_specific_params": `{"a":1}`, "_name_or_path": `"/home/me"`,
	}))
	if err != nil {
		t.Fatal(err)
	}
	m := c.Model.(BERT)
	if m.Labels != 4 || c.Labels[3] != "LABEL_3" || m.ClassifierDropout != 0.3 || c.EOS != 7 {
		t.Errorf("read %+v with labels %v", m, c.Labels)
	}
	if !slices.Equal(c.Unknown, []string{"my_note"}) {
		t.Errorf("unknown keys are %v, want my_note", c.Unknown)
	}
	for _, key := range []string{"my_note", "task_specific_params"} {
		if c.Kept[key] == nil {
			t.Errorf("%s is not kept; kept are %v", key, slices.Sorted(maps.Keys(c.Kept)))
		}
	}
	if c.Kept["_name_or_path"] != nil {
		t.Error("a path of this machine would be written into exported folders")
	}
	old, err := ParseConfig(changed(t, "neox-old", map[string]string{"rotary_pct": "", "rotary_emb_base": "", "partial_rotary_factor": "1", "rope_theta": "500"}))
	if err != nil {
		t.Fatal(err)
	}
	if m := old.Model.(NeoX); m.RotaryPct != 1 || m.RotaryBase != 500 {
		t.Errorf("rotary settings are %v and %v, want 1 and 500", m.RotaryPct, m.RotaryBase)
	}
	bare, err := ParseConfig(changed(t, "gpt2", map[string]string{"architectures": ""}))
	if err != nil || bare.Head != HeadNone {
		t.Errorf("a folder without a class: %v, %v", bare, err)
	}
	pre, err := ParseConfig(changed(t, "bert-masked", map[string]string{"architectures": `["BertForPreTraining"]`}))
	if err != nil || pre.Head != HeadMasked {
		t.Errorf("a folder of pre-training: %v, %v", pre, err)
	}
}

// Any config.json is refused or makes a model whose description reads back the same.
func FuzzParseConfig(f *testing.F) {
	for _, name := range folders {
		f.Add(changed(f, name, nil))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseConfig(text)
		if err != nil {
			return
		}
		out, err := c.JSON()
		if err != nil {
			t.Fatalf("%s\nwas read but cannot be written: %v", text, err)
		}
		again, err := ParseConfig(out)
		if err != nil {
			t.Fatalf("%s\nwas written as\n%s\nwhich is refused: %v", text, out, err)
		}
		if d := cmp.Diff(c.Model, again.Model); d != "" {
			t.Fatal(d)
		}
	})
}
