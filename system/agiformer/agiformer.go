package agiformer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/system/corpus"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/rundir"
)

// System defines the system for the command line.
var System = system.System{
	Config: config.System{
		Name:     "agiformer",
		Help:     "byte-level language model with memory, several kinds of experts, and introspection",
		Sections: sections,
		Resolve:  resolve,
		Check:    check,
	},
	Describe:  describe,
	Open:      open,
	Synthetic: synthetic,
	Missing:   missing,
	Language:  language,
	Prompt:    corpus.Prompt,
	Export:    export,

	ExportMerged: exportMerged,
}

func describe(c *config.Config) (*system.Model, error) {
	net, err := network(c)
	if err != nil {
		return nil, err
	}
	m, t, length := config.Of[Model](c), &c.Training, c.Data.SeqLen
	adapters, lora := net.adapters(c), config.Of[system.LoRA](c)
	return &system.Model{
		Shape: system.Shape{MicroBatch: t.BatchSize, Accumulation: t.GradientAccumulationSteps, CEChunk: t.CEChunk, EvalBatch: t.EvalBatchSize},
		Unit:  "tokens", UnitsPerRow: int64(length),
		Training: func(s system.Shape) engine.Training {
			tr := system.Training(c, s)
			tr.Eval = c.Data.HoldsOut()
			tr.Model = func(b *graph.Builder, mode engine.Mode) engine.Objective {
				return net.objective(b, s, length, m.BalanceWeight, m.IntrospectionWeight, mode.Train, false)
			}
			return system.Adapt(tr, adapters, graph.Invalid)
		},
		Examination: func(s system.Shape) engine.Training {
			tr := system.Training(c, s)
			tr.Model = func(b *graph.Builder, mode engine.Mode) engine.Objective {
				return net.objective(b, s, length, m.BalanceWeight, m.IntrospectionWeight, mode.Train, true)
			}
			return system.Adapt(tr, adapters, graph.Invalid)
		},
		Classes: net.Vocab, Width: net.D, Least: lora.LeastFrozen(net.least(length)), AllReached: lora.AllReached(),
		Summary: map[string]any{
			"architecture": "agiformer", "d_model": net.D, "n_layers": net.Layers, "n_heads": net.Heads, "d_ff": net.FF,
			"vocab_size": net.Vocab, "max_seq_len": net.MaxPositions, "experts": net.Experts.Kinds,
		},
	}, nil
}

func open(ctx context.Context, c *config.Config, m *system.Model, env system.Env) (*system.Run, error) {
	net, err := network(c)
	if err != nil {
		return nil, err
	}
	if err := missing(c); err != nil {
		return nil, err
	}
	base, lora := net.baseOf(c), config.Of[system.LoRA](c)
	run := &system.Run{Monitor: train.Metric{Name: "eval_loss"}, Load: net.load, Close: func() error { return nil }}
	if base.Dir != "" {
		run.Load = func(x *engine.Executable) error {
			if err := net.load(x); err != nil {
				return err
			}
			return lora.Begin(x, base, env.Log)
		}
	}
	evaluated, baseline, err := net.open(ctx, c, m.Shape, env, run)
	if err != nil {
		return nil, err
	}
	if err := lora.Attach(run, base); err != nil {
		return nil, errors.Join(err, run.Close())
	}
	run.DataBytes += system.FolderBytes(base.Dir)
	if evaluated == nil {
		return run, nil
	}
	run.Evaluator = net.evaluation(evaluated, m.Shape.Rows(false), c.Training.EvalBatches)
	run.Report = func(ctx context.Context, r *engine.Executable, update int64, dir *rundir.Dir) error {
		f, err := net.measure(ctx, r, evaluated, m.Shape.Rows(false), c.Training.EvalBatches)
		if err != nil {
			return err
		}
		p := f.page(update, baseline)
		if text, ok := evaluated.(windows); ok {
			found, err := corpus.ExamineWindows(ctx, r, text.Windows, m.Shape.Rows(false), c.Training.EvalBatches, false)
			if err != nil {
				return err
			}
			p.Sections = append(p.Sections, found.Sections(net.spell())...)
		}
		return p.Save(dir)
	}
	run.Baselines = []system.Baseline{{Name: "unigram", Value: baseline.Unigram}, {Name: "bigram", Value: baseline.Bigram}}
	return run, nil
}

// missing returns an error if weights are missing that are not trained.
func missing(c *config.Config) error {
	net, err := network(c)
	if err != nil {
		return err
	}
	return errors.Join(net.missing(), config.Of[system.LoRA](c).MissingRun(config.Of[Model](c).Folder))
}

func (m Net) missing() error {
	if l := m.Language; l != nil && l.Model != nil && l.Folder == "" {
		return fmt.Errorf("model.language.frozen: a frozen model needs weights: set model.language.path to a GPT-NeoX, GPT-2, Llama or Qwen3 folder, or train one with model.language.frozen false")
	}
	if s := m.Senses; s != nil && s.Frozen && s.Folder == "" {
		return fmt.Errorf("model.image.frozen: a frozen encoder needs weights: set model.image.path to a CLIP folder, or train one with model.image.frozen false")
	}
	return nil
}

// open prepares the text, or the captions of a model with senses. It sets the data loader of run and returns
// what is held out, or nil.
func (m Net) open(ctx context.Context, c *config.Config, s system.Shape, env system.Env, run *system.Run) (heldOut, data.Baseline, error) {
	if m.Senses != nil {
		return m.openCaptions(ctx, c, s, env, run)
	}
	text, err := prepare(ctx, c, env)
	if err != nil {
		return nil, data.Baseline{}, err
	}
	if v := text.Tokenizer.VocabSize(); v > m.Vocab {
		return nil, data.Baseline{}, errors.Join(fmt.Errorf("the tokenizer has %d tokens, the model takes %d: set model.vocab_size to %d", v, m.Vocab, v), text.Close())
	}
	run.Loader, err = text.Loader(data.LoaderOptions{
		MicroBatches: s.Accumulation, BatchSize: s.MicroBatch,
		Shuffle: c.Data.Shuffle, Seed: c.Data.ShuffleSeed, Workers: c.Data.Workers, Depth: c.Data.Prefetch,
	})
	if err != nil {
		return nil, data.Baseline{}, errors.Join(err, text.Close())
	}
	run.Rows = text.Train.Len()
	run.DataBytes, run.Close, run.Files, run.Text = text.Bytes, text.Close, text.TokenizerFiles, text.Report
	run.LoaderKeys = []string{system.WorkersKey, system.PrefetchKey}
	if text.HeldOut == nil {
		return nil, data.Baseline{}, nil
	}
	return windows{text.HeldOut}, text.Baseline, nil
}

// openCaptions is open for a folder of captions.
func (m Net) openCaptions(ctx context.Context, c *config.Config, s system.Shape, env system.Env, run *system.Run) (heldOut, data.Baseline, error) {
	t, err := bytesTokenizer()
	if err != nil {
		return nil, data.Baseline{}, err
	}
	train, err := openCaptions(c.Data.Source[0], "train", m, c.Data.SeqLen, data.RecordLimit(int64(c.Data.MaxRecord)), t)
	if err != nil {
		return nil, data.Baseline{}, err
	}
	run.Rows = int64(len(train.list))
	run.Loader = &captionLoader{captions: train, rows: s.MicroBatch, micro: s.Accumulation, shuffle: c.Data.Shuffle, seed: c.Data.ShuffleSeed}
	if err := env.Continues(run.Loader); err != nil {
		return nil, data.Baseline{}, err
	}
	path, err := saveTokenizer(env.Cache, t)
	if err != nil {
		return nil, data.Baseline{}, err
	}
	file, err := regular.Read(path, token.MaxFile)
	if err != nil {
		return nil, data.Baseline{}, err
	}
	run.Files = map[string][]byte{filepath.Base(path): file}
	if c.Data.HeldOutFraction == 0 {
		return nil, data.Baseline{}, nil
	}
	held, err := openCaptions(c.Data.Source[0], "val", m, c.Data.SeqLen, data.RecordLimit(int64(c.Data.MaxRecord)), t)
	if err != nil {
		return nil, data.Baseline{}, err
	}
	opt := data.WindowOptions{Length: c.Data.SeqLen, CrossDocument: true}
	a, err := data.NewWindows(train.spoken(), opt)
	if err != nil {
		return nil, data.Baseline{}, err
	}
	b, err := data.NewWindows(held.spoken(), opt)
	if err != nil {
		return nil, data.Baseline{}, err
	}
	baseline, err := data.Baselines(ctx, a, b)
	return held, baseline, err
}

// bytesTokenizer returns a tokenizer whose tokens are bytes.
func bytesTokenizer() (*token.Tokenizer, error) {
	return token.Bytes(token.Special{Content: corpus.EndOfText, Roles: []token.Role{token.EOS}})
}

// saveTokenizer writes the byte tokenizer to a file below cache, unless it exists, and returns the path.
func saveTokenizer(cache string, t *token.Tokenizer) (path string, err error) {
	dir := filepath.Join(cache, "tokenizer-bytes")
	path = filepath.Join(dir, token.File)
	if kept, err := token.Load(path); err == nil && kept.VocabSize() == t.VocabSize() {
		return path, nil
	}
	return path, t.SaveWhole(dir)
}

// prepare opens the text, as bytes unless a tokenizer is configured, or with the tokenizer of the run that
// training starts from.
func prepare(ctx context.Context, c *config.Config, env system.Env) (*corpus.Corpus, error) {
	switch folder := config.Of[Model](c).Folder; {
	case c.Data.Tokenizer.Path != "":
	case folder != "":
		own := *c
		own.Data.Tokenizer.Path = folder
		c = &own
	default:
		t, err := bytesTokenizer()
		if err != nil {
			return nil, err
		}
		path, err := saveTokenizer(env.Cache, t)
		if err != nil {
			return nil, err
		}
		own := *c
		own.Data.Tokenizer.Path = path
		c = &own
	}
	return corpus.Prepare(ctx, c, env.Cache, env.Position, c.Data.SeqLen, env.Log)
}
