// Package moderation is the system "moderation". It lets texts through or flags them, with an encoder of the
// shape of BERT or RoBERTa (such as PhoBERT) and a classification head, fine-tuned from a model folder or
// trained from scratch.
//
// Its guarantees:
//
//   - Everything is fitted on the right split: class weights on the training texts, the threshold and the
//     temperature on the validation texts. The test texts are only reported on.
//   - A text that is in two splits is found, reported, and (unless data.duplicates says otherwise) not
//     trained on.
//   - A text gets the same logits whatever it is batched with and however far it is padded.
//   - The loss is the weighted mean over the whole update, so accumulation, length buckets and half-filled
//     micro-batches do not change it.
package moderation

import (
	"fmt"
	"slices"
	"strings"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/inference/serve"
	"github.com/snug-ml/snug/internal/few"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
)

// Model is the section "model" of the configuration.
type Model struct {
	Folder            string  `key:"folder" help:"what to start from, which decides every size: a model folder (config.json, weights, tokenizer), or a run or checkpoint of moderation; empty: from scratch"`
	Architecture      string  `key:"architecture" enum:"bert,roberta" help:"layout of the weights, positions and head"`
	DModel            int     `key:"d_model" min:"1" of:"width" help:"width of the residual stream"`
	NLayers           int     `key:"n_layers" min:"1" of:"layers" help:"blocks"`
	NHeads            int     `key:"n_heads" min:"1" of:"heads" help:"attention heads"`
	DFF               int     `key:"d_ff" min:"1" of:"width" help:"width of the feed-forward layer"`
	VocabSize         int     `key:"vocab_size" min:"0" of:"vocabulary" help:"tokens; 0: data.tokenizer.vocab_size"`
	MaxSeqLen         int     `key:"max_seq_len" min:"3" of:"positions" help:"maximum length of a text in tokens, markers included"`
	TokenTypes        int     `key:"token_types" min:"1" of:"vocabulary" help:"rows of the token type table; texts are all of type 0"`
	PadID             int     `key:"pad_id" min:"0" of:"vocabulary" help:"id of padding; roberta's positions start after it"`
	Activation        string  `key:"activation" help:"activation of the feed-forward layer: gelu, gelu_tanh, relu or silu"`
	Dropout           float64 `key:"dropout" min:"0" below:"1" help:"share of activations dropped"`
	AttentionDropout  float64 `key:"attention_dropout" min:"0" below:"1" help:"share of attention weights dropped"`
	ClassifierDropout float64 `key:"classifier_dropout" min:"0" below:"1" help:"share dropped before the classification head"`
	Pooling           string  `key:"pooling" enum:"first,mean" help:"what the head reads: the first token, or the mean of all tokens"`
	WideRows          int     `key:"wide_rows" min:"0" of:"table" help:"rows of a hash table of word and word-pair scores that are added to the logits; 0: none"`
	WideLR            float64 `key:"wide_lr" above:"0" help:"learning rate of that table, as a multiple of training.learning_rate"`
	LayerNormEps      float64 `key:"layer_norm_eps" above:"0" help:"epsilon added to the variance"`
	InitStd           float64 `key:"init_std" above:"0" help:"standard deviation of initial weights that no folder gives"`
}

// Data holds the keys that the system adds to the section "data".
type Data struct {
	Test       []string `key:"test" help:"files for the report only; empty: test_fraction of the source"`
	TestShare  float64  `key:"test_fraction" min:"0" below:"1" help:"share held out for the test if no files are named"`
	LabelField string   `key:"label_field" help:"field or column that holds the label"`
	NoHeader   bool     `key:"no_header" help:"csv and tsv files start with data; their columns are then called 1, 2, ..."`
	Positive   []string `key:"positive_labels" help:"labels that flag a text, ignoring case"`
	Negative   []string `key:"negative_labels" help:"labels that accept a text, ignoring case"`
	Name       string   `key:"positive_name" help:"name of the flagged class in reports and answers"`
	Other      string   `key:"negative_name" help:"name of the other class"`
	Duplicates string   `key:"duplicates" enum:"drop,keep" help:"training texts that also appear in another split; drop: do not train on them"`
	Buckets    []int    `key:"buckets" min:"1" of:"positions" help:"lengths that micro-batches are padded to, each a compiled shape; empty: a ladder up to data.seq_len"`
}

// Decision holds the keys of the section "decision".
type Decision struct {
	Precision    float64 `key:"precision" min:"0" max:"1" help:"precision on the validation texts that the threshold must reach; 0: the threshold with the best F1"`
	ClassWeights string  `key:"class_weights" enum:"balanced,none" help:"balanced: n/(2 n_class) of the training texts"`
	Baseline     bool    `key:"baseline" help:"also train a logistic regression on word and word-pair counts, as a baseline for the report"`
}

// System defines the system for the command line.
var System = system.System{
	Config: config.System{
		Name:     "moderation",
		Help:     "text classifier that accepts or flags texts, with a BERT or RoBERTa encoder",
		Sections: sections,
		Resolve:  resolve,
		Check:    check,
	},
	Describe:  describe,
	Smaller:   smaller,
	Missing:   missing,
	Synthetic: synthetic,
	Predictor: func(c *config.Config, checkpoint string, on engine.Backend) (inference.Predictor, error) {
		k, err := LoadClassifier(c, checkpoint, on)
		if err != nil {
			return nil, err
		}
		return predictor{k}, nil
	},
	Service: func(c *config.Config, checkpoint string, on engine.Backend, opt serve.Options) (serve.Service, error) {
		k, err := LoadClassifier(c, checkpoint, on)
		if err != nil {
			return nil, err
		}
		return newService(k, opt), nil
	},
	Open:   open,
	Export: export,

	ExportMerged: exportMerged,
}

func sections() []config.Section {
	base, lora := system.DefaultBaseWeights, system.DefaultLoRA
	return []config.Section{
		{Name: "model", Values: &Model{
			Architecture: "roberta", DModel: 128, NLayers: 2, NHeads: 4, DFF: 512, MaxSeqLen: 128, TokenTypes: 1, PadID: 1,
			Activation: "gelu", Dropout: 0.1, AttentionDropout: 0.1, ClassifierDropout: 0.1, Pooling: "first", WideLR: 10, LayerNormEps: 1e-5, InitStd: 0.02,
		}},
		{Name: "model", Values: &base}, {Name: "lora", Values: &lora},
		{Name: "data", Values: &Data{
			LabelField: "label", Name: "invalid", Other: "valid", Duplicates: "drop",
			Positive: []string{"1", "true", "yes", "invalid", "offensive", "hate", "toxic", "spam", "positive"},
			Negative: []string{"0", "false", "no", "valid", "clean", "ham", "negative"},
		}},
		{Name: "decision", Values: &Decision{Precision: 0.9, ClassWeights: "balanced", Baseline: true}},
	}
}

// resolve copies the sizes of the model folder, or of the run, to the configuration. With adapters, the
// default is to train the whole head, as PEFT does.
func resolve(c *config.Config, r *config.Report) {
	m := config.Of[Model](c)
	if !system.FollowRun(c, r, &m.Folder, sections, "dropout", "attention_dropout", "classifier_dropout", "wide_lr", "init_std") {
		system.FollowEncoder(c, r, m.Folder)
	}
	if o, _ := c.Origin("lora.modules_to_save"); o.Kind == config.Default && len(config.Of[system.LoRA](c).Targets) > 0 {
		head := "[classifier]"
		if m.WideRows > 0 {
			head = "[classifier, wide]"
		}
		if err := c.Derive("lora.modules_to_save", head, "lora.targets"); err != nil {
			r.Error("lora.modules_to_save", "%v", err)
		}
	}
}

func missing(c *config.Config) error {
	if err := config.Of[system.LoRA](c).Missing(config.Of[Model](c).Folder); err != nil {
		return err
	}
	return system.MissingFiles(c, "data.source", c.Data.Source)
}

// baseOf returns what training starts from. A model folder may have another head.
func baseOf(c *config.Config) system.Base {
	return system.Base{Dir: config.Of[Model](c).Folder, Options: hf.LoadOptions{NewHead: true}}
}

// markers is the number of tokens before and after a text.
const markers = 2

func check(c *config.Config, r *config.Report) {
	m, d := config.Of[Model](c), config.Of[Data](c)
	if m.VocabSize == 0 {
		m.VocabSize = c.Data.Tokenizer.VocabSize
	}
	if m.Folder == "" && c.Data.Tokenizer.Path == "" && m.VocabSize < c.Data.Tokenizer.VocabSize {
		r.Error("model.vocab_size", "%d is smaller than data.tokenizer.vocab_size (%d): the model needs a row for every token", m.VocabSize, c.Data.Tokenizer.VocabSize)
	}
	if err := bert(c).Check(); err != nil {
		r.Error(hf.KeyOf("model", err), "%v", err)
	}
	if c.Data.SeqLen <= markers {
		r.Error("data.seq_len", "%d tokens leave no room for text: %d are markers", c.Data.SeqLen, markers)
	}
	if len(d.Buckets) > 0 {
		if !slices.IsSorted(d.Buckets) || len(slices.Compact(slices.Clone(d.Buckets))) != len(d.Buckets) {
			r.Error("data.buckets", "%s are not in ascending order", few.Of(d.Buckets))
		}
		if last := d.Buckets[len(d.Buckets)-1]; last != c.Data.SeqLen {
			r.Error("data.buckets", "the last is %d, want data.seq_len (%d)", last, c.Data.SeqLen)
		}
	}
	unused(c, r)
	config.Of[system.LoRA](c).Check(c, r)
	for _, p := range d.Positive {
		if slices.ContainsFunc(d.Negative, func(n string) bool { return strings.EqualFold(n, p) }) {
			r.Error("data.positive_labels", "%q is in data.negative_labels too", p)
		}
	}
	if !c.Data.HoldsOut() {
		r.Error("data.held_out_fraction", "nothing is held out: without validation texts no threshold can be chosen; name files in data.validation")
	}
	if c.Data.HeldOutFraction+d.TestShare >= 1 {
		r.Error("data.test_fraction", "nothing is left to train on with this data.held_out_fraction")
	}
}

// unused rejects the common keys about documents, because here texts are fields of separate records.
func unused(c *config.Config, r *config.Report) {
	if f := c.Data.Format; f == data.FormatText || f == data.FormatNPZ {
		r.Error("data.format", "a %s file has no labels; want jsonl, json, csv, tsv or parquet", f)
	}
	r.Unused("reads one text per record, from the field data.text_field", "data.documents", "data.overlap", "data.segment_mask")
	r.NoSamples("generates no text")
	if c.Data.SplitBy == "end" {
		r.Error("data.split_by", "end cuts documents, and texts with labels are held out whole: want document or folder")
	}
}

// buckets returns the lengths that micro-batches are padded to.
func buckets(c *config.Config) []int {
	if d := config.Of[Data](c); len(d.Buckets) > 0 {
		return d.Buckets
	}
	return ladder(c.Data.SeqLen)
}

// ladder returns 16, 24, 32, 48, 64, ..., which doubles in two steps: no text is padded by more than half,
// most by far less, and there are few shapes to compile.
func ladder(longest int) []int {
	var out []int
	for l := 16; l < longest; l *= 2 {
		out = append(out, l)
		if l+l/2 < longest {
			out = append(out, l+l/2)
		}
	}
	return append(out, longest)
}

// variant names the compiled shape of a bucket.
func variant(length int) string { return fmt.Sprint(length) }
