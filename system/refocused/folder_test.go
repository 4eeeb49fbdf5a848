package refocused

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// texts writes a corpus of a few words. What is held out depends on the names of the files, and thus on the
// folder of the test, so there are enough files that some are always held out.
func texts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	words := strings.Fields("the a quick slow brown red fox dog cat bird jumps runs over under near lazy tree river")
	n := uint32(1)
	for f := range 48 {
		var b strings.Builder
		for range 40 {
			n = n*1664525 + 1013904223
			fmt.Fprintf(&b, "%s ", words[n>>16%uint32(len(words))])
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.txt", f)), []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// load returns the configuration given by key, value pairs.
func load(pairs ...string) (*config.Config, error) {
	s := config.Sources{Systems: []config.System{System.Config}}
	for pair := range slices.Chunk(pairs, 2) {
		s.Overrides = append(s.Overrides, config.Override{Key: pair[0], Text: pair[1]})
	}
	return config.Load(s)
}

// started is a run with its first weights.
type started struct {
	c   *config.Config
	run *system.Run
	r   *engine.Executable
	log []string
}

func start(t *testing.T, pairs ...string) (*started, error) {
	t.Helper()
	c, err := load(pairs...)
	if err != nil {
		return nil, err
	}
	m, err := describe(c)
	if err != nil {
		return nil, err
	}
	s := &started{c: c}
	log := func(format string, args ...any) { s.log = append(s.log, fmt.Sprintf(format, args...)) }
	if s.run, err = open(context.Background(), c, m, system.Env{Cache: t.TempDir(), Log: log}); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		s.run.Loader.Close()
		if err := s.run.Close(); err != nil {
			t.Error(err)
		}
	})
	p, err := engine.CompileTraining(m.Training(m.Shape), engine.CompileOptions{Verify: true})
	if err != nil {
		return nil, err
	}
	if s.r, err = p.Load(backend.CPU(2)); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := s.r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.r.Initialize(c.Training.Seed); err != nil {
		t.Fatal(err)
	}
	if s.run.Load != nil {
		err = s.run.Load(s.r)
	}
	return s, err
}

// train does a few updates and exports the result. It returns the last held-out loss.
func (s *started) train(t *testing.T, folder string) float64 {
	t.Helper()
	run := t.TempDir()
	store, err := checkpoint.Open(run, checkpoint.Options{})
	if err != nil {
		t.Fatal(err)
	}
	job := &train.Job{
		Runner: s.r, Loader: s.run.Loader, Updates: 30, Seed: s.c.Training.Seed, Eval: train.EvalOptions{Evaluator: s.run.Evaluator, Monitor: s.run.Monitor},
		Schedule: &train.Schedule{Kind: train.Constant, Peak: 3e-3, Total: 30}, Save: train.SaveOptions{Store: store, Run: checkpoint.Snapshot{Files: s.run.Files}},
	}
	res, err := job.Run(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := export(s.c, res.Checkpoint, folder); err != nil {
		t.Fatal(err)
	}
	return res.Metrics["eval_loss"]
}

func (s *started) evaluate(t *testing.T) float64 {
	t.Helper()
	m, err := train.Evaluate(context.Background(), s.run.Evaluator, s.r, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m["eval_loss"]
}

// rewrite changes the tensors of a folder's weights.
func rewrite(t *testing.T, folder string, change func(map[string]safetensors.Entry)) {
	t.Helper()
	path := filepath.Join(folder, "model.safetensors")
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	tensors := map[string]safetensors.Entry{}
	for _, info := range f.Tensors() {
		x, err := f.Tensor(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		tensors[info.Name] = safetensors.Entry{Name: x.Name, DType: x.DType, Shape: x.Shape, Data: slices.Clone(x.Data)}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	change(tensors)
	var list []safetensors.Entry
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		list = append(list, tensors[name])
	}
	if err := safetensors.WriteFile(path, list, nil); err != nil {
		t.Fatal(err)
	}
}

// TestTrainOnFromFolder: an exported model continues training from where it was. The folder provides all
// sizes, the weights and the tokenizer.
func TestTrainOnFromFolder(t *testing.T) {
	corpus := texts(t)
	data := []string{"data.source", filepath.Join(corpus, "*.txt"), "data.held_out_fraction", "0.3", "training.batch_size", "4", "data.seq_len", "32"}
	first, err := start(t, append(slices.Clone(data), "model.d_model", "32", "model.n_layers", "2", "model.n_heads", "2", "model.d_ff", "48",
		"model.max_seq_len", "40", "model.rotary_pct", "0.5", "model.rotary_base", "5000", "model.parallel_residual", "false",
		"model.activation", "gelu_tanh", "model.tie_embeddings", "true", "data.tokenizer.vocab_size", "300")...)
	if err != nil {
		t.Fatal(err)
	}
	untrained := first.evaluate(t)
	folder := filepath.Join(t.TempDir(), "folder")
	want := first.train(t, folder)
	if want > untrained-0.5 {
		t.Fatalf("the loss fell from %v to %v: too little to tell weights apart", untrained, want)
	}
	data = append(data, "model.folder", folder)

	on, err := start(t, data...)
	if err != nil {
		t.Fatal(err)
	}
	if got := on.evaluate(t); math.Abs(got-want) > 1e-5 {
		t.Errorf("training goes on at a loss of %v, it ended at %v", got, want)
	}
	for _, path := range []string{"model.n_layers", "model.activation", "model.tie_embeddings"} {
		if o, _ := on.c.Origin(path); o.Kind != config.Derived {
			t.Errorf("%s comes from %v", path, o)
		}
	}
	if a, b := neox(first.c), neox(on.c); a != b {
		t.Errorf("the model is %+v, that of the folder %+v", b, a)
	}

	// With more tokens, existing rows are kept, the rest are new, and this is reported.
	wider, err := start(t, append(slices.Clone(data), "model.vocab_size", "320")...)
	if err != nil {
		t.Fatal(err)
	}
	if told := strings.Join(wider.log, "\n"); !strings.Contains(told, "model.folder: resized gpt_neox.embed_in.weight from 300 to 320 rows") {
		t.Errorf("told: %s", told)
	}

	for _, test := range []struct {
		name, want string
		flags      []string
		change     func(map[string]safetensors.Entry)
	}{
		{name: "fewer tokens than the tokenizer", flags: []string{"model.vocab_size", "290"}, want: "the tokenizer has 300 tokens, the model takes 290"},
		{name: "another width", flags: []string{"model.d_model", "64"}, want: "--model.d_model: config.json of model.folder has 32, got 64"},
		{name: "longer than the model takes", flags: []string{"data.seq_len", "64"}, want: "want at most model.max_seq_len (40), got 64"},
		{name: "a missing tensor", want: "missing: gpt_neox.layers.1.mlp.dense_4h_to_h.weight",
			change: func(m map[string]safetensors.Entry) { delete(m, "gpt_neox.layers.1.mlp.dense_4h_to_h.weight") }},
		{name: "a surplus one", want: "surplus: gpt_neox.extra.weight",
			change: func(m map[string]safetensors.Entry) {
				x := m["gpt_neox.embed_in.weight"]
				x.Name = "gpt_neox.extra.weight"
				m[x.Name] = x
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			pairs := slices.Clone(data)
			if test.change != nil {
				other := filepath.Join(t.TempDir(), "other")
				if err := os.CopyFS(other, os.DirFS(folder)); err != nil {
					t.Fatal(err)
				}
				rewrite(t, other, test.change)
				pairs[len(pairs)-1] = other
			}
			for pair := range slices.Chunk(test.flags, 2) {
				if at := slices.Index(pairs, pair[0]); at >= 0 {
					pairs[at+1] = pair[1]
				} else {
					pairs = append(pairs, pair...)
				}
			}
			if _, err := start(t, pairs...); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestTrainOnFromLlama: a Llama or Qwen3 continues as well, with every setting of its positions.
func TestTrainOnFromLlama(t *testing.T) {
	data := []string{"data.source", filepath.Join(texts(t), "*.txt"), "data.held_out_fraction", "0.3", "training.batch_size", "4", "data.seq_len", "32"}
	for name, flags := range map[string][]string{
		"llama3": {"model.architecture", "llama", "model.n_kv_heads", "2", "model.rope.type", "llama3", "model.rope.factor", "4",
			"model.rope.original_max_seq_len", "8", "model.rope.low_freq_factor", "1.5", "model.rope.high_freq_factor", "3"},
		"yarn": {"model.architecture", "llama", "model.attention_bias", "true", "model.mlp_bias", "true", "model.rope.type", "yarn",
			"model.rope.factor", "4", "model.rope.original_max_seq_len", "8", "model.rope.beta_fast", "8", "model.rope.beta_slow", "0.5",
			"model.rope.mscale", "0.7", "model.rope.mscale_all_dim", "1.2", "model.rope.truncate", "false"},
		"qwen3": {"model.architecture", "qwen3", "model.n_kv_heads", "1", "model.head_dim", "16", "model.tie_embeddings", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			first, err := start(t, slices.Concat(data, flags, []string{"model.d_model", "32", "model.n_layers", "2", "model.n_heads", "4",
				"model.d_ff", "48", "model.max_seq_len", "40", "data.tokenizer.vocab_size", "300"})...)
			if err != nil {
				t.Fatal(err)
			}
			untrained, folder := first.evaluate(t), filepath.Join(t.TempDir(), "folder")
			want := first.train(t, folder)
			if want > untrained-0.5 {
				t.Fatalf("the loss fell from %v to %v: too little to tell weights apart", untrained, want)
			}
			on, err := start(t, append(slices.Clone(data), "model.folder", folder)...)
			if err != nil {
				t.Fatal(err)
			}
			if got := on.evaluate(t); math.Abs(got-want) > 1e-5 {
				t.Errorf("training goes on at a loss of %v, it ended at %v", got, want)
			}
			if a, b := networkOf(first.c), networkOf(on.c); a != b {
				t.Errorf("the model is %+v, that of the folder %+v", b, a)
			}
		})
	}
}

// TestFoldersOfOtherModels covers the requirements on a folder.
func TestFoldersOfOtherModels(t *testing.T) {
	for folder, want := range map[string]string{
		"../../nn/hf/testdata/gpt2": "has a gpt2 model, whose layers refocused does not have; want a gpt_neox, llama or qwen3 folder",
		"../../nn/hf/testdata/bert": "has a bert model",
		t.TempDir():                 "is not a model folder",
	} {
		if _, err := load("model.folder", folder); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", folder, err, want)
		}
	}
}
