package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
)

// ConfigFile is the name of a model folder's description.
const ConfigFile = "config.json"

// maxConfig bounds the config.json that is read, in bytes. Lists of labels
// make the largest ones.
const maxConfig = 16 << 20

// Head is the layer on top of a model.
type Head uint8

// The heads.
const (
	HeadNone       Head = iota // only the last hidden state (BERT: also the pooler)
	HeadCausal                 // logits of the next token
	HeadMasked                 // logits of the token itself
	HeadClassifier             // logits of the labels of a text
)

func (h Head) String() string {
	return [...]string{"no head", "causal language model", "masked language model", "sequence classification"}[h]
}

// The values of model_type.
const (
	typeNeoX    = "gpt_neox"
	typeGPT2    = "gpt2"
	typeLlama   = "llama"
	typeQwen3   = "qwen3"
	typeBERT    = "bert"
	typeRoBERTa = "roberta"
)

// family is what the folders of one model type have in common.
type family struct {
	kind string
	// base is the scope of the model without its head, and the prefix of its
	// tensors in a folder with a head.
	base string
	// heads names the class of transformers for each head.
	heads map[Head]string
	// buffers end the names of tensors that are not weights, which old versions of
	// transformers saved.
	buffers []string
	// head are the scopes of heads.
	head []string
	// vocab are tensors with one row for each token.
	vocab []string
	// tied are tensors that repeat the embedding where output and embedding are
	// tied; twin are those that repeat another one.
	embedding string
	tied      []string
	twin      map[string]string
}

var families = [...]family{{
	kind: typeNeoX, base: "gpt_neox",
	heads:     map[Head]string{HeadNone: "GPTNeoXModel", HeadCausal: "GPTNeoXForCausalLM"},
	buffers:   []string{".attention.bias", ".attention.masked_bias", "rotary_emb.inv_freq"},
	head:      []string{"embed_out."},
	vocab:     []string{"gpt_neox.embed_in.weight", "embed_out.weight"},
	embedding: "gpt_neox.embed_in.weight", tied: []string{"embed_out.weight"},
}, {
	kind: typeGPT2, base: "transformer",
	heads:     map[Head]string{HeadNone: "GPT2Model", HeadCausal: "GPT2LMHeadModel"},
	buffers:   []string{".attn.bias", ".attn.masked_bias"},
	head:      []string{"lm_head."},
	vocab:     []string{"transformer.wte.weight", "lm_head.weight"},
	embedding: "transformer.wte.weight", tied: []string{"lm_head.weight"},
}, llamaFamily(typeLlama, "Llama"), llamaFamily(typeQwen3, "Qwen3"), {
	kind: typeBERT, base: "bert",
	heads: map[Head]string{HeadNone: "BertModel", HeadMasked: "BertForMaskedLM",
		HeadClassifier: "BertForSequenceClassification"},
	buffers:   []string{"embeddings.position_ids", "embeddings.token_type_ids"},
	head:      []string{"cls.", "classifier.", "bert.pooler."},
	vocab:     []string{"bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight", "cls.predictions.bias"},
	embedding: "bert.embeddings.word_embeddings.weight", tied: []string{"cls.predictions.decoder.weight"},
	twin: map[string]string{"cls.predictions.decoder.bias": "cls.predictions.bias"},
}, {
	kind: typeRoBERTa, base: "roberta",
	heads: map[Head]string{HeadNone: "RobertaModel", HeadMasked: "RobertaForMaskedLM",
		HeadClassifier: "RobertaForSequenceClassification"},
	buffers:   []string{"embeddings.position_ids", "embeddings.token_type_ids"},
	head:      []string{"lm_head.", "classifier.", "roberta.pooler."},
	vocab:     []string{"roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight", "lm_head.bias"},
	embedding: "roberta.embeddings.word_embeddings.weight", tied: []string{"lm_head.decoder.weight"},
	twin: map[string]string{"lm_head.decoder.bias": "lm_head.bias"},
}}

func llamaFamily(kind, class string) family {
	return family{
		kind: kind, base: "model",
		heads:     map[Head]string{HeadNone: class + "Model", HeadCausal: class + "ForCausalLM"},
		buffers:   []string{"rotary_emb.inv_freq"},
		head:      []string{"lm_head."},
		vocab:     []string{"model.embed_tokens.weight", "lm_head.weight"},
		embedding: "model.embed_tokens.weight", tied: []string{"lm_head.weight"},
	}
}

// Config is the description of a model in its folder.
type Config struct {
	Model Model
	Head  Head
	// Labels are the names of the classes, by number (classification).
	Labels []string
	// BOS, EOS and Pad are the ids of special tokens, -1 for none.
	BOS, EOS, Pad int
	// Kept are keys of config.json that do not change what the model computes; Export
	// writes them back.
	Kept map[string]json.RawMessage
	// Unknown are the keys in Kept that snug does not know.
	Unknown []string
}

// family returns the family of the configured model.
func (c *Config) family() *family {
	kind := ""
	switch m := c.Model.(type) {
	case NeoX:
		kind = typeNeoX
	case GPT2:
		kind = typeGPT2
	case Llama:
		kind = typeLlama
		if m.QKNorm {
			kind = typeQwen3
		}
	case BERT:
		kind = typeBERT
		if m.RoBERTa {
			kind = typeRoBERTa
		}
	}
	for i := range families {
		if families[i].kind == kind {
			return &families[i]
		}
	}
	return nil
}

// Type is the model_type of the folder.
func (c *Config) Type() string {
	if f := c.family(); f != nil {
		return f.kind
	}
	return ""
}

// Check reports a configuration that does not make a model.
func (c *Config) Check() error {
	if c.Model == nil {
		return errors.New("the configuration has no model")
	}
	f := c.family()
	if f == nil {
		return fmt.Errorf("a Hugging Face folder cannot hold a %T: want NeoX, GPT2, Llama or BERT", c.Model)
	}
	if f.heads[c.Head] == "" {
		return fmt.Errorf("a %s model has no head for %s here", f.kind, c.Head)
	}
	if m, ok := c.Model.(BERT); ok {
		if c.Head == HeadClassifier && (m.Labels < 1 || m.Labels != len(c.Labels)) {
			return fmt.Errorf("the model has %d labels and names for %d", m.Labels, len(c.Labels))
		}
		if c.Pad != m.Pad {
			return fmt.Errorf("the padding id is %d, that of the model %d", c.Pad, m.Pad)
		}
	}
	return c.Model.Check()
}

// Result is the output of a model with its head; parts that it does not have are nil.
type Result struct {
	Hidden *graph.Value // [B, T, D]
	// Pooled [B, D] is BERT's and RoBERTa's without a head.
	Pooled *graph.Value
	// Logits are [B*T, Vocab] of a language model, [B, Labels] of a classifier.
	Logits *graph.Value
}

// Forward adds the model with its head to a graph.
func (c *Config) Forward(b *graph.Builder, in Input) (r Result) {
	r.Hidden = c.Model.Hidden(b, in)
	switch m := c.Model.(type) {
	case Causal:
		if c.Head == HeadCausal {
			r.Logits = b.Linear(b.Reshape(r.Hidden, -1, r.Hidden.Shape().Last()), m.Output(b), nil)
		}
	case BERT:
		switch c.Head {
		case HeadNone:
			r.Pooled = m.Pooled(b, in, r.Hidden)
		case HeadMasked:
			r.Logits = m.MaskedLogits(b, in, r.Hidden)
		case HeadClassifier:
			r.Logits = m.Classify(b, in, r.Hidden)
		}
	}
	return r
}

// Weights are the weights of the model with its head.
func (c *Config) Weights() ([]*graph.State, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	var weights []*graph.State
	err := graph.Catch(func() {
		b := graph.NewBuilder("weights")
		c.Forward(b, Input{IDs: b.Input("ids", graph.T(graph.I32, 1, 1))})
		for _, v := range b.F.States {
			if v.State.Role == graph.Weight {
				weights = append(weights, v.State)
			}
		}
	})
	return weights, err
}

// ReadConfig reads config.json of a model folder.
func ReadConfig(dir string) (*Config, error) {
	path := filepath.Join(dir, ConfigFile)
	text, err := regular.Read(path, maxConfig)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("%w (a relative path starts at the working directory)", err)
		}
		return nil, fmt.Errorf("%s is not a model folder: it has no %s: %w", dir, ConfigFile, os.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ParseConfig reads the text of a config.json, of transformers 2 to 5.
func ParseConfig(text []byte) (*Config, error) {
	k := &keys{used: map[string]bool{}}
	if err := strictjson.Unmarshal(text, &k.all); err != nil {
		return nil, fmt.Errorf("not a JSON object with every key once: %w", err)
	}
	c := &Config{}
	kind := k.str("model_type", "")
	switch kind {
	case typeNeoX:
		c.Model = k.neox()
	case typeGPT2:
		c.Model = k.gpt2()
	case typeLlama, typeQwen3:
		c.Model = k.llama(kind == typeQwen3)
	case typeBERT, typeRoBERTa:
		c.Model = k.bert(kind == typeRoBERTa)
	case "":
		k.fail("model_type is missing: want gpt_neox, gpt2, llama, qwen3, bert or roberta")
	default:
		k.fail("model_type %q is not supported: gpt_neox, gpt2, llama, qwen3, bert and roberta are", kind)
	}
	if k.err == nil {
		c.head(k)
	}
	if k.err == nil {
		k.refuse()
		k.keep(c)
	}
	if k.err != nil {
		return nil, k.err
	}
	return c, c.Check()
}

// head reads the folder's head, its labels and the special tokens.
func (c *Config) head(k *keys) {
	f := c.family()
	c.BOS, c.EOS, c.Pad = k.id("bos_token_id", -1), k.id("eos_token_id", -1), k.id("pad_token_id", -1)
	if m, ok := c.Model.(BERT); ok {
		c.Pad = m.Pad
	}
	labels := k.labels()
	var classes []string
	if raw, ok := k.take("architectures"); ok {
		k.decode("architectures", raw, &classes, "a list of class names")
	}
	if k.err != nil {
		return
	}
	switch len(classes) {
	case 0:
		c.Head = HeadNone // a folder that names no class holds the bare model
	case 1:
		var known []string
		found := false
		for h := HeadNone; h <= HeadClassifier; h++ {
			if f.heads[h] != "" {
				known = append(known, f.heads[h])
			}
			if f.heads[h] == classes[0] {
				c.Head, found = h, true
			}
		}
		// Pre-training adds a head to the masked language model's.
		if classes[0] == "BertForPreTraining" && f.kind == typeBERT {
			c.Head, found = HeadMasked, true
		}
		if !found {
			k.fail("architectures: %q is not supported: %s are", classes[0], strings.Join(known, ", "))
		}
	default:
		k.fail("architectures: names %d classes, want one", len(classes))
	}
	if m, ok := c.Model.(BERT); ok && c.Head == HeadClassifier {
		m.Labels, c.Labels = len(labels), labels
		c.Model = m
	}
}
