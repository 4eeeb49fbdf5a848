// Package refocused is the system "refocused": causal language models (GPT-NeoX, Llama, Qwen3) trained from
// raw text.
package refocused

import (
	"context"
	"errors"
	"fmt"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/corpus"
	"github.com/snug-ml/snug/train"
)

// Model is the section "model" of the configuration.
type Model struct {
	Folder           string  `key:"folder" help:"what to start from, which decides the architecture and the sizes: a model folder (config.json, weights, tokenizer; gpt_neox, llama or qwen3), or a run or checkpoint of refocused; empty: from scratch"`
	Architecture     string  `key:"architecture" enum:"gpt_neox,llama,qwen3" help:"kind of the blocks; llama and qwen3 have RMS norms and a gated feed-forward layer, qwen3 also norms each head"`
	DModel           int     `key:"d_model" min:"1" of:"width" help:"width of the residual stream"`
	NLayers          int     `key:"n_layers" min:"1" of:"layers" help:"blocks"`
	NHeads           int     `key:"n_heads" min:"1" of:"heads" help:"attention heads"`
	NKVHeads         int     `key:"n_kv_heads" min:"0" of:"heads" help:"heads of keys and values, which divide model.n_heads (llama, qwen3); 0: as many"`
	HeadDim          int     `key:"head_dim" min:"0" of:"width" help:"dimensions of a head (llama, qwen3); 0: model.d_model / model.n_heads"`
	DFF              int     `key:"d_ff" min:"1" of:"width" help:"width of the feed-forward layer"`
	VocabSize        int     `key:"vocab_size" min:"0" of:"vocabulary" help:"tokens; 0: those of model.folder, or data.tokenizer.vocab_size; any other number adds rows to the folder's table or drops its last ones"`
	MaxSeqLen        int     `key:"max_seq_len" min:"1" of:"positions" help:"positions"`
	RotaryPct        float64 `key:"rotary_pct" min:"0" max:"1" help:"share of a head that is rotated (gpt_neox)"`
	RotaryBase       float64 `key:"rotary_base" above:"0" help:"base of the rotary angles"`
	Rope             Rope    `key:"rope" help:"how rotary angles are stretched for longer texts (llama, qwen3)"`
	ParallelResidual bool    `key:"parallel_residual" help:"attention and feed-forward read the same input (gpt_neox)"`
	AttentionBias    bool    `key:"attention_bias" help:"biases in the linear layers of attention (llama, qwen3)"`
	MLPBias          bool    `key:"mlp_bias" help:"biases in the feed-forward layers (llama)"`
	Activation       string  `key:"activation" enum:"gelu,gelu_tanh,silu" help:"activation of the feed-forward layer; of its gate (llama, qwen3), where silu is the default"`
	Dropout          float64 `key:"dropout" min:"0" below:"1" help:"share of activations dropped"`
	AttentionDropout float64 `key:"attention_dropout" min:"0" below:"1" help:"share of attention weights dropped"`
	LayerNormEps     float64 `key:"layer_norm_eps" above:"0" help:"epsilon added to the variance, or to the mean square of an RMS norm"`
	TieEmbeddings    bool    `key:"tie_embeddings" help:"the output matrix is the embedding"`
	InitStd          float64 `key:"init_std" above:"0" help:"standard deviation of the initial weights"`
}

// Rope is the section "model.rope"; see [hf.Rope].
type Rope struct {
	Type      string  `key:"type" enum:"default,linear,dynamic,llama3,yarn" help:"how, as rope_scaling of config.json names it; default: not at all"`
	Factor    float64 `key:"factor" min:"0" help:"what slow frequencies are divided by"`
	Original  int     `key:"original_max_seq_len" min:"0" of:"positions" help:"positions before they were stretched (llama3, yarn)"`
	LowFreq   float64 `key:"low_freq_factor" min:"0" help:"turns in the original positions below which a frequency is divided (llama3)"`
	HighFreq  float64 `key:"high_freq_factor" min:"0" help:"turns in the original positions above which a frequency stays (llama3)"`
	BetaFast  float64 `key:"beta_fast" min:"0" help:"turns in the original positions above which a frequency stays (yarn)"`
	BetaSlow  float64 `key:"beta_slow" min:"0" help:"turns in the original positions below which a frequency is divided (yarn)"`
	Attention float64 `key:"attention_factor" min:"0" help:"what cos and sin are multiplied by (yarn); 0: by model.rope.factor"`
	MScale    float64 `key:"mscale" min:"0" help:"scale of that factor (yarn); 0: 1"`
	MScaleAll float64 `key:"mscale_all_dim" min:"0" help:"scale of what it is divided by (yarn); 0: it is not"`
	Truncate  bool    `key:"truncate" help:"the range of pairs begins and ends with a whole one (yarn)"`
}

var defaults = Model{
	Architecture: gptNeoX, DModel: 256, NLayers: 4, NHeads: 4, DFF: 1024, MaxSeqLen: 256, RotaryPct: 0.25, RotaryBase: 10000,
	ParallelResidual: true, Activation: "gelu", LayerNormEps: 1e-5, InitStd: 0.02,
	Rope: Rope{Type: hf.RopeDefault, LowFreq: 1, HighFreq: 4, BetaFast: 32, BetaSlow: 1, Truncate: true},
}

// System defines the system for the command line.
var System = system.System{
	Config: config.System{
		Name:     "refocused",
		Help:     "GPT-NeoX, Llama or Qwen3 causal language model, trained from raw text",
		Sections: sections,
		Resolve:  resolve,
		Check:    check,
	},
	Describe: describe,
	Smaller:  smaller,
	Open:     open,
	Missing: func(c *config.Config) error {
		return config.Of[system.LoRA](c).Missing(config.Of[Model](c).Folder)
	},
	Synthetic: func(c *config.Config) system.Synthetic {
		return system.Synthetic{Fill: corpus.Synthetic(config.Of[Model](c).VocabSize)}
	},
	Language: language,
	Prompt:   corpus.Prompt,
	Export:   export,

	ExportMerged: exportMerged,
}

func sections() []config.Section {
	m, base, lora := defaults, system.DefaultBaseWeights, system.DefaultLoRA
	return []config.Section{{Name: "model", Values: &m}, {Name: "model", Values: &base}, {Name: "lora", Values: &lora}}
}

func check(c *config.Config, r *config.Report) {
	m := config.Of[Model](c)
	if m.VocabSize == 0 {
		m.VocabSize = c.Data.Tokenizer.VocabSize
	}
	if m.Folder == "" && c.Data.Tokenizer.Path == "" && m.VocabSize < c.Data.Tokenizer.VocabSize {
		r.Error("model.vocab_size", "%d is smaller than data.tokenizer.vocab_size (%d): the model needs a row for every token", m.VocabSize, c.Data.Tokenizer.VocabSize)
	}
	foreign(m, r)
	config.Of[system.LoRA](c).Check(c, r)
	if err := networkOf(c).Check(); err != nil {
		r.Error(hf.KeyOf("model", err), "%v", err)
	}
}

func describe(c *config.Config) (*system.Model, error) {
	return describeAs(c, *config.Of[system.BaseWeights](c))
}

// smaller returns changes to formats of frozen weights with fewer bits than the configured one.
func smaller(c *config.Config) []system.Change {
	return config.Of[system.LoRA](c).Smaller(*config.Of[system.BaseWeights](c), func(w system.BaseWeights) (*system.Model, error) {
		return describeAs(c, w)
	})
}

func describeAs(c *config.Config, base system.BaseWeights) (*system.Model, error) {
	m, net, lora := config.Of[Model](c), networkOf(c), config.Of[system.LoRA](c)
	t, length := &c.Training, c.Data.SeqLen
	return &system.Model{
		Shape: system.Shape{MicroBatch: t.BatchSize, Accumulation: t.GradientAccumulationSteps, CEChunk: t.CEChunk, EvalBatch: t.EvalBatchSize},
		Unit:  "tokens", UnitsPerRow: int64(length), Classes: m.VocabSize,
		Training: func(s system.Shape) engine.Training {
			tr := system.Training(c, s)
			tr.Eval = c.Data.HoldsOut()
			tr.Model = func(b *graph.Builder, mode engine.Mode) engine.Objective {
				return objective(b, net, s, length, c.Data.SegmentMask, mode.Train, false)
			}
			return lora.Train(tr, t.Seed, base.DType())
		},
		Examination: func(s system.Shape) engine.Training {
			tr := system.Training(c, s)
			tr.Model = func(b *graph.Builder, mode engine.Mode) engine.Objective {
				return objective(b, net, s, length, c.Data.SegmentMask, mode.Train, true)
			}
			return lora.Train(tr, t.Seed, base.DType())
		},
		Width: m.DModel, Least: lora.Least(least(net, m.DModel, length), base.DType()), AllReached: lora.AllReached(),
		Summary: map[string]any{
			"architecture": m.Architecture, "d_model": m.DModel, "n_layers": m.NLayers, "n_heads": m.NHeads,
			"d_ff": m.DFF, "vocab_size": m.VocabSize, "max_seq_len": m.MaxSeqLen,
		},
	}, nil
}

// least returns the minimum that training needs; see [plan.Least].
func least(net network, width, length int) plan.Least {
	tables, blocks := net.Sizes()
	return plan.Least{
		{Of: plan.Trained, Count: tables, Keys: "model.vocab_size or model.d_model"},
		{Of: plan.Trained, Count: blocks, Keys: "model.n_layers, model.d_model or model.d_ff"},
		plan.Tokens(length, width),
	}
}

func objective(b *graph.Builder, net network, s system.Shape, length int, segments, training, examine bool) engine.Objective {
	rows := s.Rows(training)
	n := rows * length
	in := hf.Input{IDs: b.Input(corpus.InputIDs, graph.T(graph.I32, rows, length)), Train: training}
	if segments {
		in.Segments = b.Input(corpus.InputSegments, graph.T(graph.I32, rows, length))
	}
	h := net.Hidden(b, in)
	w := net.Output(b)
	var o engine.Objective
	b.Scope("loss", func() {
		hidden, labels, weights := b.Reshape(h, n, -1), b.Input(corpus.InputLabels, graph.T(graph.I32, n)), b.Input(corpus.InputWeights, graph.T(graph.F32, n))
		if !examine {
			o.Sum = b.LinearCrossEntropy(hidden, w, labels, weights, s.CEChunk)
			return
		}
		rows := n
		if s.CEChunk > 0 {
			rows = min(s.CEChunk, n)
		}
		ce := b.Emit(graph.LinearCrossEntropy{Chunk: rows}, hidden, w, labels, weights)
		o.Sum, o.Outputs = ce[0], corpus.Examine(b, hidden, w, labels, ce[1], rows)
	})
	return o
}

// baseOf returns what training starts from. With adapters, the vocabulary is not resized.
func baseOf(c *config.Config) system.Base {
	whole := len(config.Of[system.LoRA](c).Targets) == 0
	return system.Base{Dir: config.Of[Model](c).Folder, Options: hf.LoadOptions{ResizeVocabulary: whole}}
}

func open(ctx context.Context, c *config.Config, m *system.Model, env system.Env) (*system.Run, error) {
	base, lora := baseOf(c), config.Of[system.LoRA](c)
	if base.Dir != "" && c.Data.Tokenizer.Path == "" {
		own := *c
		own.Data.Tokenizer.Path = base.Dir
		c = &own
	}
	text, err := corpus.Prepare(ctx, c, env.Cache, env.Position, c.Data.SeqLen, env.Log)
	if err != nil {
		return nil, err
	}
	if v, takes := text.Tokenizer.VocabSize(), config.Of[Model](c).VocabSize; v > takes {
		return nil, errors.Join(fmt.Errorf("the tokenizer has %d tokens, the model takes %d: set model.vocab_size to %d", v, takes, v), text.Close())
	}
	feed, err := text.Loader(data.LoaderOptions{
		MicroBatches: m.Shape.Accumulation, BatchSize: m.Shape.MicroBatch, Segments: c.Data.SegmentMask,
		Shuffle: c.Data.Shuffle, Seed: c.Data.ShuffleSeed, Workers: c.Data.Workers, Depth: c.Data.Prefetch,
	})
	if err != nil {
		return nil, errors.Join(err, text.Close())
	}
	run := &system.Run{
		Loader: feed, Monitor: train.Metric{Name: "eval_loss"}, DataBytes: text.Bytes + system.FolderBytes(base.Dir), Close: text.Close,
		Rows: text.Train.Len(), Files: text.TokenizerFiles, Text: text.Report, LoaderKeys: []string{system.WorkersKey, system.PrefetchKey},
	}
	if base.Dir != "" {
		run.Load = func(r *engine.Executable) error { return lora.Begin(r, base, env.Log) }
	}
	if err := lora.Attach(run, base); err != nil {
		return nil, errors.Join(err, text.Close())
	}
	if text.HeldOut != nil {
		run.Evaluator = text.Evaluator(m.Shape.Rows(false), c.Training.EvalBatches, c.Data.SegmentMask)
		run.Baselines = baselines(text)
		run.Report = reporter(c, text, m.Shape.Rows(false), env.Log)
	}
	return run, nil
}
