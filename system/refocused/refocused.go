// Package refocused is the system "refocused": GPT-NeoX causal language models
// trained from raw text.
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
	Folder           string  `key:"folder" help:"GPT-NeoX model folder to start from (config.json, weights, tokenizer), which decides the sizes; empty: from scratch"`
	DModel           int     `key:"d_model" min:"1" of:"width" help:"width of the residual stream"`
	NLayers          int     `key:"n_layers" min:"1" of:"layers" help:"blocks"`
	NHeads           int     `key:"n_heads" min:"1" of:"heads" help:"attention heads"`
	DFF              int     `key:"d_ff" min:"1" of:"width" help:"width of the feed-forward layer"`
	VocabSize        int     `key:"vocab_size" min:"0" of:"vocabulary" help:"tokens; 0: those of model.folder, or data.tokenizer.vocab_size; any other number adds rows to the folder's table or drops its last ones"`
	MaxSeqLen        int     `key:"max_seq_len" min:"1" of:"positions" help:"positions"`
	RotaryPct        float64 `key:"rotary_pct" min:"0" max:"1" help:"share of a head that is rotated"`
	RotaryBase       float64 `key:"rotary_base" above:"0" help:"base of the rotary angles"`
	ParallelResidual bool    `key:"parallel_residual" help:"attention and feed-forward read the same input"`
	Activation       string  `key:"activation" enum:"gelu,gelu_tanh" help:"activation of the feed-forward layer"`
	Dropout          float64 `key:"dropout" min:"0" below:"1" help:"share of activations dropped"`
	AttentionDropout float64 `key:"attention_dropout" min:"0" below:"1" help:"share of attention weights dropped"`
	LayerNormEps     float64 `key:"layer_norm_eps" above:"0" help:"epsilon added to the variance"`
	TieEmbeddings    bool    `key:"tie_embeddings" help:"the output matrix is the embedding"`
	InitStd          float64 `key:"init_std" above:"0" help:"standard deviation of the initial weights"`
}

// System is the system as the command line knows it.
var System = system.System{
	Config: config.System{
		Name: "refocused",
		Help: "GPT-NeoX causal language model, trained from raw text",
		Sections: func() []config.Section {
			return []config.Section{{Name: "model", Values: &Model{
				DModel: 256, NLayers: 4, NHeads: 4, DFF: 1024, MaxSeqLen: 256, RotaryPct: 0.25, RotaryBase: 10000,
				ParallelResidual: true, Activation: "gelu", LayerNormEps: 1e-5, InitStd: 0.02,
			}}}
		},
		Resolve: fromFolder,
		Check:   check,
	},
	Describe: describe,
	Open:     open,
	Language: language,
	Export:   export,
}

func check(c *config.Config, r *config.Report) {
	m := config.Of[Model](c)
	if m.VocabSize == 0 {
		m.VocabSize = c.Data.Tokenizer.VocabSize
	}
	if m.Folder == "" && c.Data.Tokenizer.Path == "" && m.VocabSize < c.Data.Tokenizer.VocabSize {
		r.Error("model.vocab_size", "%d is smaller than data.tokenizer.vocab_size (%d): the model could not take every token", m.VocabSize, c.Data.Tokenizer.VocabSize)
	}
	if err := neox(c).Check(); err != nil {
		r.Error(hf.KeyOf("model", err), "%v", err)
	}
}

// neox is the configured architecture.
func neox(c *config.Config) hf.NeoX {
	m := config.Of[Model](c)
	return hf.NeoX{
		Vocab: m.VocabSize, D: m.DModel, Layers: m.NLayers, Heads: m.NHeads, FF: m.DFF, MaxPositions: m.MaxSeqLen,
		RotaryPct: m.RotaryPct, RotaryBase: m.RotaryBase, Parallel: m.ParallelResidual, Activation: m.Activation,
		Eps: m.LayerNormEps, Tied: m.TieEmbeddings, InitStd: m.InitStd,
		Dropout: m.Dropout, AttentionDropout: m.AttentionDropout, Seed: c.Training.Seed,
	}
}

func describe(c *config.Config) (*system.Model, error) {
	net := neox(c)
	t, length := &c.Training, c.Data.SeqLen
	return &system.Model{
		Shape: system.Shape{MicroBatch: t.BatchSize, Accumulation: t.GradientAccumulationSteps, CEChunk: t.CEChunk},
		Unit:  "tokens", UnitsPerRow: int64(length), Classes: net.Vocab,
		Training: func(s system.Shape) engine.Training {
			tr := system.Training(c, s)
			tr.Eval = c.Data.HeldOutFraction > 0
			tr.Model = func(b *graph.Builder, mode engine.Mode) engine.Objective {
				return objective(b, net, s, length, c.Data.SegmentMask, mode.Train)
			}
			return tr
		},
		Width: net.D, Least: least(net, length),
		Summary: map[string]any{
			"architecture": "gpt_neox", "d_model": net.D, "n_layers": net.Layers, "n_heads": net.Heads,
			"d_ff": net.FF, "vocab_size": net.Vocab, "max_seq_len": net.MaxPositions,
		},
	}, nil
}

// least is what training needs at the least; see [plan.Least].
func least(net hf.NeoX, length int) plan.Least {
	tables, blocks := net.Sizes()
	return plan.Least{
		{Of: plan.Trained, Count: tables, Keys: "model.vocab_size or model.d_model"},
		{Of: plan.Trained, Count: blocks, Keys: "model.n_layers, model.d_model or model.d_ff"},
		plan.Tokens(length, net.D),
	}
}

func objective(b *graph.Builder, net hf.NeoX, s system.Shape, length int, segments, training bool) engine.Objective {
	n := s.MicroBatch * length
	in := hf.Input{IDs: b.Input(corpus.InputIDs, graph.T(graph.I32, s.MicroBatch, length)), Train: training}
	if segments {
		in.Segments = b.Input(corpus.InputSegments, graph.T(graph.I32, s.MicroBatch, length))
	}
	h := net.Hidden(b, in)
	w := net.Output(b)
	var loss *graph.Value
	b.Scope("loss", func() {
		loss = b.LinearCrossEntropy(b.Reshape(h, n, net.D), w,
			b.Input(corpus.InputLabels, graph.T(graph.I32, n)), b.Input(corpus.InputWeights, graph.T(graph.F32, n)), s.CEChunk)
	})
	return engine.Objective{Sum: loss}
}

func open(ctx context.Context, c *config.Config, m *system.Model, env system.Env) (*system.Run, error) {
	folder := config.Of[Model](c).Folder
	if folder != "" && c.Data.Tokenizer.Path == "" {
		own := *c
		own.Data.Tokenizer.Path = folder
		c = &own
	}
	text, err := corpus.Prepare(ctx, c, env.Cache, env.Position, c.Data.SeqLen, env.Log)
	if err != nil {
		return nil, err
	}
	net := neox(c)
	if v := text.Tokenizer.VocabSize(); v > net.Vocab {
		return nil, errors.Join(fmt.Errorf("the tokenizer has %d tokens, the model takes %d: set model.vocab_size to %d", v, net.Vocab, v), text.Close())
	}
	feed, err := text.Loader(data.LoaderOptions{
		MicroBatches: m.Shape.Accumulation, BatchSize: m.Shape.MicroBatch, Segments: c.Data.SegmentMask,
		Shuffle: c.Data.Shuffle, Seed: c.Data.ShuffleSeed, Workers: c.Data.Workers,
	})
	if err != nil {
		return nil, errors.Join(err, text.Close())
	}
	run := &system.Run{
		Loader: feed, Monitor: train.Metric{Name: "eval_loss"}, DataBytes: text.Bytes + system.FolderBytes(folder), Close: text.Close,
		Files: text.TokenizerFiles, Text: text.Report,
	}
	if folder != "" {
		run.Load = func(r *engine.Executable) error {
			return system.LoadFolder(r, folder, hf.LoadOptions{ResizeVocabulary: true}, env.Log)
		}
	}
	if text.HeldOut != nil {
		run.Evaluator = text.Evaluator(m.Shape.MicroBatch, c.Training.EvalBatches, c.Data.SegmentMask)
		run.Baselines = []system.Baseline{{Name: "unigram", Value: text.Baseline.Unigram}, {Name: "bigram", Value: text.Baseline.Bigram}}
	}
	return run, nil
}
