package finetune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/engine/plan"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/corpus"
	"github.com/snug-ml/snug/train"
)

// Model is the section "model".
type Model struct {
	Folder string `key:"folder" help:"model folder that is fine-tuned (config.json, weights, tokenizer; gpt_neox, gpt2, llama or qwen3); empty, for plans only: a Llama of 1.1 billion parameters"`
}

// Data adds settings to the section "data".
type Data struct {
	ChatTemplate string `key:"chat_template" help:"file with the Jinja template of conversations, or chatml; empty: that of model.folder"`
	TooLong      string `key:"too_long" enum:"cut,drop" help:"conversations of more than data.seq_len tokens: cut keeps their beginning"`
}

// messagesField is the field of a record that holds a conversation.
const messagesField = "messages"

// inputPositions I32 [B, T] is an input of models with a table of positions.
const inputPositions = "positions"

// System defines the system for the command line.
var System = system.System{
	Config: config.System{
		Name: "finetune",
		Help: "causal language model of a folder, fine-tuned on conversations",
		Sections: func() []config.Section {
			lora := system.DefaultLoRA
			lora.Targets = []string{nn.AllLinear}
			base := system.DefaultBaseWeights
			return []config.Section{{Name: "model", Values: &Model{}}, {Name: "model", Values: &base}, {Name: "lora", Values: &lora}, {Name: "data", Values: &Data{TooLong: "cut"}}}
		},
		Resolve: resolve,
		Check:   check,
	},
	Describe: describe,
	Extents:  extents,
	Smaller:  smaller,
	Open:     open,
	Missing:  missing,
	Synthetic: func(c *config.Config) system.Synthetic {
		net, err := network(c)
		if err != nil {
			return system.Synthetic{}
		}
		return system.Synthetic{Fill: synthetic(net.Dims().Vocab)}
	},
	Language:     language,
	Prompt:       func(*config.Config) string { return "What is a loss?" },
	Export:       export,
	ExportMerged: exportMerged,
}

// assumed is the model that plans use if there is no folder. It has the shape of TinyLlama (1.1 B).
var assumed = hf.Llama{
	Vocab: 32000, D: 2048, Layers: 22, FF: 5632, Heads: 32, KVHeads: 4, HeadSize: 64, MaxPositions: 2048,
	Rope: hf.Rope{Base: 10000, Kind: hf.RopeDefault}, Activation: "silu", Eps: 1e-5, InitStd: 0.02,
}

// network returns the model without dropout, because adapters have their own.
func network(c *config.Config) (hf.Causal, error) {
	folder := config.Of[Model](c).Folder
	if folder == "" {
		return assumed, nil
	}
	f, err := hf.ReadConfig(folder)
	if err != nil {
		return nil, err
	}
	switch m := f.Model.(type) {
	case hf.Llama:
		m.Dropout, m.AttentionDropout = 0, 0
		return m, nil
	case hf.NeoX:
		m.Dropout, m.AttentionDropout = 0, 0
		return m, nil
	case hf.GPT2:
		m.EmbedDropout, m.Dropout, m.AttentionDropout = 0, 0, 0
		return m, nil
	}
	return nil, fmt.Errorf("%s has a %s model, which does not write: want a gpt_neox, gpt2, llama or qwen3 folder", folder, f.Type())
}

// mostDefault is the default of data.seq_len, unless the model has fewer positions.
const mostDefault = 1024

func resolve(c *config.Config, r *config.Report) {
	net, err := network(c)
	if err != nil {
		r.Error(system.FolderKey, "%v", err)
		return
	}
	if c.Data.SeqLen == 0 {
		if err := c.Derive("data.seq_len", strconv.Itoa(min(mostDefault, net.Positions())), "model.folder"); err != nil {
			r.Error("data.seq_len", "%v", err)
		}
	}
	if c.Data.SeqLen > net.Positions() {
		r.Error("data.seq_len", "want at most %d, the positions of the model, got %d", net.Positions(), c.Data.SeqLen)
	}
}

func check(c *config.Config, r *config.Report) {
	r.Unused("learns conversations", "data.text_field", "data.documents", "data.overlap", "data.split_by", "data.segment_mask", "data.tokenizer")
	if f := c.Data.Format; f != "auto" && f != "jsonl" && f != "json" && f != "parquet" {
		r.Error("data.format", "want jsonl, json or parquet, whose records have messages, got %s", f)
	}
	config.Of[system.LoRA](c).Check(c, r)
}

func missing(c *config.Config) error {
	if config.Of[Model](c).Folder == "" {
		return errors.New("--model.folder: want the folder of a model to fine-tune")
	}
	return system.MissingFiles(c, "data.source", c.Data.Source)
}

func describe(c *config.Config) (*system.Model, error) { return describeAs(c, chosen(c)) }

// choice holds the settings of the model that plans vary.
type choice struct {
	length int
	base   graph.DType
	lora   system.LoRA
	net    hf.Causal // nil means the model of the folder
}

// chosen returns the configured choice.
func chosen(c *config.Config) choice {
	return choice{length: c.Data.SeqLen, base: config.Of[system.BaseWeights](c).DType(), lora: *config.Of[system.LoRA](c)}
}

// rankStep is the step between ranks that a plan tries, and lengthStep the one between row lengths.
const rankStep, lengthStep = 8, 16

// mostBlocks is roughly the depth of the deepest published folders.
const mostBlocks = 128

// folders varies the size of the model: with a folder, the number of its blocks. Without one, it uses Llamas
// with 4 blocks per 512 of width, a ratio found at 8 and 13 billion parameters.
func folders(c *config.Config, net hf.Causal) system.Extent {
	of := net.WithLayers
	most := mostBlocks
	if config.Of[Model](c).Folder == "" {
		most = 32
		of = func(n int) hf.Causal {
			m := assumed
			m.HeadSize, m.D, m.Layers, m.FF = 128, 512*n, 4*n, 512*n*7/2
			m.Heads, m.KVHeads = 4*n, 4
			return m
		}
	}
	return system.Extent{
		Key: system.FolderKey, Step: 1, Most: most,
		Model: func(n int) (*system.Model, error) {
			with := chosen(c)
			with.net = of(n)
			return describeAs(c, with)
		},
		Size: func(n int) (int, string, string) {
			m := of(n)
			tables, blocks := m.Sizes()
			note := fmt.Sprintf("%d blocks of width %d", m.Dims().Layers, m.Dims().Width)
			if n == most {
				note += "; larger ones were not tried"
			}
			return int(tables + blocks), "parameters", note
		},
	}
}

// extents returns the folder, the window and the rank.
func extents(c *config.Config) []system.Extent {
	net, err := network(c)
	if err != nil {
		return nil // describe reports the error
	}
	list := []system.Extent{folders(c, net), {Key: "data.seq_len", Step: lengthStep, Most: net.Positions(), Model: func(n int) (*system.Model, error) {
		with := chosen(c)
		with.length = n
		return describeAs(c, with)
	}}}
	if len(config.Of[system.LoRA](c).Targets) == 0 {
		return list
	}
	return append(list, system.Extent{Key: "lora.rank", Step: rankStep, Most: net.Dims().Width, Model: func(n int) (*system.Model, error) {
		with := chosen(c)
		with.lora.Rank = n
		return describeAs(c, with)
	}})
}

// smaller returns changes to formats of frozen weights with fewer bits than the configured one.
func smaller(c *config.Config) []system.Change {
	return config.Of[system.LoRA](c).Smaller(*config.Of[system.BaseWeights](c), func(w system.BaseWeights) (*system.Model, error) {
		with := chosen(c)
		with.base = w.DType()
		return describeAs(c, with)
	})
}

func describeAs(c *config.Config, with choice) (*system.Model, error) {
	net := with.net
	if net == nil {
		var err error
		if net, err = network(c); err != nil {
			return nil, fmt.Errorf("model.folder: %w", err)
		}
	}
	t, length, base, lora := &c.Training, with.length, with.base, &with.lora
	dims := net.Dims()
	tables, blocks := net.Sizes()
	return &system.Model{
		Shape: system.Shape{MicroBatch: t.BatchSize, Accumulation: t.GradientAccumulationSteps, CEChunk: t.CEChunk, EvalBatch: t.EvalBatchSize},
		Unit:  "tokens", UnitsPerRow: int64(length), Classes: dims.Vocab, Width: dims.Width,
		Training: func(s system.Shape) engine.Training {
			tr := system.Training(c, s)
			tr.Eval = c.Data.HoldsOut()
			tr.Model = func(b *graph.Builder, mode engine.Mode) engine.Objective {
				return objective(b, net, s, length, mode.Train)
			}
			return lora.Train(tr, t.Seed, base)
		},
		Least: lora.Least(plan.Least{
			{Of: plan.Trained, Count: tables, Keys: "the vocabulary of model.folder"},
			{Of: plan.Trained, Count: blocks, Keys: "the blocks of model.folder"},
			plan.Tokens(length, dims.Width),
		}, base),
		AllReached: lora.AllReached(),
		Summary:    map[string]any{"folder": config.Of[Model](c).Folder, "d_model": dims.Width, "vocab_size": dims.Vocab, "seq_len": length},
	}, nil
}

func objective(b *graph.Builder, net hf.Causal, s system.Shape, length int, training bool) (o engine.Objective) {
	rows := s.Rows(training)
	n := rows * length
	table := func(name string) *graph.Value { return b.Input(name, graph.T(graph.I32, rows, length)) }
	in := hf.Input{IDs: table(corpus.InputIDs), Segments: table(corpus.InputSegments), Train: training}
	if _, ok := net.(hf.GPT2); ok {
		in.Positions = table(inputPositions)
	}
	h := net.Hidden(b, in)
	w := net.Output(b)
	b.Scope("loss", func() {
		o.Sum = b.LinearCrossEntropy(b.Reshape(h, n, -1), w, b.Input(corpus.InputLabels, graph.T(graph.I32, n)), b.Input(corpus.InputWeights, graph.T(graph.F32, n)), s.CEChunk)
	})
	return o
}

// baseOf returns the model to fine-tune.
func baseOf(c *config.Config) system.Base { return system.Base{Dir: config.Of[Model](c).Folder} }

func open(ctx context.Context, c *config.Config, m *system.Model, env system.Env) (*system.Run, error) {
	d, err := prepare(ctx, c, env.Log)
	if err != nil {
		return nil, err
	}
	base, lora := baseOf(c), config.Of[system.LoRA](c)
	id, err := system.FolderPrint(base.Dir)
	if err != nil {
		return nil, err
	}
	d.files[system.BaseFile] = []byte(id)
	loader, err := newLoader(c, d.train, m.Shape, id)
	if err != nil {
		return nil, err
	}
	run := &system.Run{
		Loader: loader, Rows: int64(d.train.Len()), LoaderKeys: []string{system.WorkersKey, system.PrefetchKey},
		Monitor: train.Metric{Name: "eval_loss"}, Files: d.files, DataBytes: system.FolderBytes(base.Dir),
		Load:  func(x *engine.Executable) error { return lora.Begin(x, base, env.Log) },
		Close: func() error { return nil },
	}
	if err := lora.Attach(run, base); err != nil {
		return nil, err
	}
	if d.heldOut != nil {
		run.Evaluator = d.heldOut.evaluation(m.Shape.Rows(false), c.Training.EvalBatches)
		run.Baselines = []system.Baseline{{Name: "unigram", Value: d.unigram}}
	}
	return run, nil
}

// metrics returns the metrics of an evaluation: the mean loss of an answer token, and the perplexity.
func metrics(_ *engine.Executable, losses []corpus.Loss) (map[string]float64, error) {
	loss := corpus.Mean(losses)
	return map[string]float64{"eval_loss": loss, "perplexity": math.Exp(loss)}, nil
}
