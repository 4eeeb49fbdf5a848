package finetune

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data"
	"github.com/snug-ml/snug/data/chat"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/inference"
	"github.com/snug-ml/snug/nn"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
	"github.com/snug-ml/snug/train"
	"github.com/snug-ml/snug/train/checkpoint"
)

// models has a model of each family.
var models = map[string]hf.Causal{
	"llama": hf.Llama{Vocab: 300, D: 32, Layers: 2, FF: 48, Heads: 4, KVHeads: 2, HeadSize: 8, MaxPositions: 64, Rope: hf.Rope{Base: 10000, Kind: hf.RopeDefault}, Activation: "silu", Eps: 1e-6, InitStd: .1},
	"qwen3": hf.Llama{Vocab: 300, D: 32, Layers: 1, FF: 48, Heads: 4, KVHeads: 2, HeadSize: 16, MaxPositions: 64, Rope: hf.Rope{Base: 10000, Kind: hf.RopeDefault}, Activation: "silu", Eps: 1e-6, InitStd: .1, QKNorm: true, Tied: true},
	"neox":  hf.NeoX{Vocab: 300, D: 32, Layers: 1, Heads: 4, FF: 64, MaxPositions: 64, RotaryPct: .5, RotaryBase: 10000, Parallel: true, Activation: "gelu", Eps: 1e-5, InitStd: .1},
	"gpt2":  hf.GPT2{Vocab: 300, D: 32, Layers: 1, Heads: 4, FF: 64, MaxPositions: 64, Activation: "gelu_new", Eps: 1e-5, InitStd: .1, Dropout: .1},
}

// weights makes the states of a program a source of tensors.
type weights struct{ x *engine.Executable }

func (w weights) Tensors() (out []safetensors.Info) {
	for _, s := range w.x.Program().States {
		out = append(out, safetensors.Info{Name: s.Name, DType: safetensors.F32, Shape: s.Type.Shape})
	}
	return out
}

func (w weights) Tensor(name string) (safetensors.Tensor, error) {
	t, err := w.x.State(name)
	return safetensors.Tensor{Info: safetensors.Info{Name: name, DType: safetensors.F32, Shape: t.Type.Shape}, Data: t.Data}, err
}

// folder makes a model folder with random weights, a tokenizer and chatml.
func folder(t *testing.T, m hf.Causal) string {
	t.Helper()
	docs := func(yield func([]byte, error) bool) { yield([]byte("user assistant says red green blue"), nil) }
	tok, err := token.TrainBPE(t.Context(), docs, token.TrainOptions{
		VocabSize: 262, Specials: []token.Special{{Content: "<|endoftext|>", Roles: []token.Role{token.EOS}}, {Content: "<|im_start|>"}, {Content: "<|im_end|>"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	files, err := tok.Files()
	if err != nil {
		t.Fatal(err)
	}
	files[chat.TemplateFile] = []byte(chat.ChatML)
	b := graph.NewBuilder("f")
	if err := graph.Catch(func() {
		b.Output("h", b.Linear(m.Hidden(b, hf.Input{IDs: b.Input("ids", graph.T(graph.I32, 1, 4))}), m.Output(b), nil))
	}); err != nil {
		t.Fatal(err)
	}
	x, err := engine.LoadForward(backend.CPU(1), engine.CompileOptions{}, b.F)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := x.Initialize(5); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "folder")
	if _, err := hf.Export(dir, &hf.Config{Model: m, Head: hf.HeadCausal, BOS: -1, EOS: -1, Pad: -1}, weights{x}, hf.ExportOptions{Files: files}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func talks(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for i := range 40 {
		c := []string{"red", "green", "blue"}[i%3]
		fmt.Fprintf(&b, `{"messages": [{"role": "user", "content": "say %s %d"}, {"role": "assistant", "content": "%[1]s"}]}`+"\n", c, i)
	}
	path := filepath.Join(t.TempDir(), "chat.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, pairs ...string) *config.Config {
	t.Helper()
	s := config.Sources{Systems: []config.System{System.Config}, NeedData: true}
	for pair := range slices.Chunk(pairs, 2) {
		s.Overrides = append(s.Overrides, config.Override{Key: pair[0], Text: pair[1]})
	}
	c, err := config.Load(s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFineTune: adapters of every family and variant learn. Generating, exporting the adapter and merging it
// all use what was trained.
func TestFineTune(t *testing.T) {
	for name, variant := range map[string]string{"llama": "rslora", "qwen3": "lora", "neox": "dora", "gpt2": "dora"} {
		t.Run(name, func(t *testing.T) {
			base := folder(t, models[name])
			kept := map[string]string{"llama": "nf4", "qwen3": "bf16", "neox": "fp16", "gpt2": "int8"}[name]
			c := load(t, "model.folder", base, "data.source", talks(t), "data.seq_len", "48", "data.held_out_fraction", "0.2", "training.batch_size", "2",
				"lora.rank", "4", "lora.variant", variant, "lora.dropout", "0.1", "training.mixed_precision", "fp32", "model.base_weights", kept)
			m, err := describe(c)
			if err != nil {
				t.Fatal(err)
			}
			run, err := open(t.Context(), c, m, system.Env{Log: t.Logf})
			if err != nil {
				t.Fatal(err)
			}
			defer run.Loader.Close()
			p, err := engine.CompileTraining(m.Training(m.Shape), engine.CompileOptions{Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range p.States {
				if of, ok := strings.CutPrefix(s.Name, engine.Moment1); ok && !system.IsNew(of) {
					t.Errorf("%s has a moment", of)
				}
			}
			for _, s := range p.States {
				want := graph.F32
				switch {
				case len(s.Type.Shape) > 1 && s.Part == graph.Outer && system.BaseWeights{Format: kept}.DType().Quantized():
					want = graph.BF16
				case len(s.Type.Shape) > 1:
					want = system.BaseWeights{Format: kept}.DType()
				}
				if s.Role == graph.Frozen && s.Type.DType != want {
					t.Errorf("with frozen matrices in %s, %s is %v", kept, s.Name, s.Type)
				}
			}
			x, err := p.Load(backend.CPU(2))
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			if err := errorsOf(x.Initialize(1), run.Load(x)); err != nil {
				t.Fatal(err)
			}
			before, err := train.Evaluate(t.Context(), run.Evaluator, x, 0)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			store, err := checkpoint.Open(dir, checkpoint.Options{})
			if err != nil {
				t.Fatal(err)
			}
			job := &train.Job{
				Runner: x, Loader: run.Loader, Updates: 40, Seed: 1, Eval: train.EvalOptions{Evaluator: run.Evaluator, Monitor: run.Monitor},
				Schedule: &train.Schedule{Kind: train.Constant, Peak: 1e-2, Total: 40}, Save: train.SaveOptions{Store: store, Run: checkpoint.Snapshot{Files: run.Files}},
			}
			res, err := job.Run(t.Context(), 0)
			if err = errorsOf(err, store.Close()); err != nil {
				t.Fatal(err)
			}
			if after := res.Metrics["eval_loss"]; after > before["eval_loss"]-0.7 {
				t.Errorf("the loss went from %v to %v", before["eval_loss"], after)
			}
			uses(t, c, base, res.Checkpoint)
		})
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// uses compares the ways to use a checkpoint with each other.
func uses(t *testing.T, c *config.Config, base, dir string) {
	t.Helper()
	adapter, merged := filepath.Join(t.TempDir(), "adapter"), filepath.Join(t.TempDir(), "merged")
	if _, err := export(c, dir, adapter); err != nil {
		t.Fatal(err)
	}
	if _, err := exportMerged(c, dir, merged); err != nil {
		t.Fatal(err)
	}
	f, err := hf.ReadConfig(base)
	if err != nil {
		t.Fatal(err)
	}
	a, w, err := hf.ReadAdapter(adapter)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	states, err := f.Weights()
	if err != nil {
		t.Fatal(err)
	}
	with := hf.Adapted{States: states, Trained: w, LoRA: a.LoRA, Frozen: config.Of[system.BaseWeights](c).Merged()}
	want, err := with.OpenFolder(f, base, hf.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	got, err := hf.OpenWeights(merged)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	changed := 0
	for _, info := range want.Tensors() {
		x, err := want.Tensor(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		y, err := got.Tensor(info.Name)
		if err != nil || string(x.Data) != string(y.Data) {
			t.Errorf("%s is not what the adapter makes of it: %v", info.Name, err)
		}
		if down, _, _ := nn.AdapterNames(strings.TrimSuffix(info.Name, ".weight")); slices.ContainsFunc(w.Tensors(), func(i safetensors.Info) bool { return i.Name == down }) {
			changed++
		}
	}
	if changed == 0 {
		t.Error("nothing was merged")
	}
	l, err := language(c, dir)
	if err != nil {
		t.Fatal(err)
	}
	g, err := inference.NewGenerator(l, backend.CPU(1))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var text strings.Builder
	if _, err := g.Generate(t.Context(), "say red 1", 3, inference.Sampling{}, &text); err != nil {
		t.Fatal(err)
	}
	// Other weights under the same name are not the ones that were adapted.
	path := filepath.Join(base, "model.safetensors")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(path, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := exportMerged(c, dir, filepath.Join(t.TempDir(), "x")); err == nil || !strings.Contains(err.Error(), "are not those that the adapters were trained on") {
		t.Errorf("got %v", err)
	}
}

// TestRows: rows hold whole conversations, only answers count, and each label is the next token of its own
// conversation.
func TestRows(t *testing.T) {
	c := load(t, "model.folder", folder(t, models["gpt2"]), "data.source", talks(t), "data.seq_len", "40", "data.held_out_fraction", "0")
	p, err := prepare(t.Context(), c, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := token.LoadFolder(config.Of[Model](c).Folder)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]int{}
	for i := range p.train.Len() {
		row := data.Row{Ints: make([][]int32, 5), Floats: make([][]float32, 5)}
		for f, field := range p.train.Fields() {
			if field.Float {
				row.Floats[f] = make([]float32, 40)
			} else {
				row.Ints[f] = make([]int32, 40)
			}
		}
		weight, err := p.train.Fill(i, row)
		if err != nil {
			t.Fatal(err)
		}
		var answer []int32
		sum := float32(0)
		for j, w := range row.Floats[fieldWeights] {
			sum += w
			if j+1 < 40 && row.Ints[fieldSegments][j] == row.Ints[fieldSegments][j+1] && row.Ints[fieldPositions][j]+1 != row.Ints[fieldPositions][j+1] && row.Ints[fieldIDs][j] != 0 {
				t.Errorf("row %d: position %d is followed by %d", i, row.Ints[fieldPositions][j], row.Ints[fieldPositions][j+1])
			}
			if w == 0 {
				if answer != nil {
					texts[tok.Decode(answer, false)]++
				}
				answer = nil
				continue
			}
			if row.Ints[fieldLabels][j] != row.Ints[fieldIDs][j+1] || row.Ints[fieldSegments][j] != row.Ints[fieldSegments][j+1] {
				t.Fatalf("row %d: the label at %d is not the next token", i, j)
			}
			answer = append(answer, row.Ints[fieldLabels][j])
		}
		if sum != weight {
			t.Errorf("row %d weighs %v, its labels %v", i, weight, sum)
		}
	}
	if want := map[string]int{"red<|im_end|>": 14, "green<|im_end|>": 13, "blue<|im_end|>": 13}; fmt.Sprint(texts) != fmt.Sprint(want) {
		t.Errorf("the answers are %v, want %v", texts, want)
	}
}

// TestPack: packing loses nothing and needs at most one row more than the minimum.
func TestPack(t *testing.T) {
	x := &rows{length: 10}
	for i := range 50 {
		x.talks = append(x.talks, span{0, 1 + i*7%10})
	}
	x.pack()
	seen, tokens := map[int]bool{}, 0
	for _, row := range x.packed {
		n := 0
		for _, k := range row {
			if seen[k] {
				t.Errorf("%d is packed twice", k)
			}
			seen[k] = true
			n += x.talks[k].to
		}
		if n > 10 {
			t.Errorf("a row has %d tokens", n)
		}
		tokens += n
	}
	if want := int(math.Ceil(float64(tokens) / 10)); len(seen) != 50 || len(x.packed) > want+1 {
		t.Errorf("%d of 50 in %d rows, where %d tokens could be", len(seen), len(x.packed), tokens)
	}
}

func TestRefusals(t *testing.T) {
	base := folder(t, models["llama"])
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "chat.jsonl")
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, test := range []struct{ text, want string }{
		{`{"messages": [{"role": "user", "content": "a"}]}`, "has no answer to train on"},
		{`{"text": "a"}`, `no field "messages"`},
		{`{"messages": [{"role": "tool", "content": "a"}]}`, `chat.jsonl:1: messages: message 0: role is "tool"`},
		{`{"messages": [{"role": "assistant", "content": "a"}], "tools": []}`, "conversations with tools are not supported"},
	} {
		c := load(t, "model.folder", base, "data.source", write(test.text))
		if _, err := prepare(t.Context(), c, t.Logf); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.text, err, test.want)
		}
	}
	for _, test := range []struct {
		want  string
		pairs []string
	}{
		{"does nothing for finetune", []string{"data.segment_mask", "false"}},
		{"want at most 64, the positions of the model", []string{"data.seq_len", "65"}},
		{"does nothing without lora.targets", []string{"lora.targets", "[]", "lora.rank", "4"}},
		{"want fp32 without lora.targets", []string{"lora.targets", "[]", "model.base_weights", "bf16"}},
		{"want fp32 with lora.targets", []string{"training.master_weights", "stochastic"}},
		{"want jsonl, json or parquet", []string{"data.format", "csv"}},
	} {
		s := config.Sources{Systems: []config.System{System.Config}}
		for pair := range slices.Chunk(append([]string{"model.folder", base}, test.pairs...), 2) {
			s.Overrides = append(s.Overrides, config.Override{Key: pair[0], Text: pair[1]})
		}
		if _, err := config.Load(s); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: got %v, want %q", test.pairs, err, test.want)
		}
	}
	c := load(t, "model.folder", base, "data.source", write(`{"messages": [{"role": "assistant", "content": "a"}]}`), "lora.targets", "[q_proj, query]")
	m, err := describe(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.CompileTraining(m.Training(m.Shape), engine.CompileOptions{}); err == nil || !strings.Contains(err.Error(), `no linear layer is called "query"; there are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj`) {
		t.Errorf("got %v", err)
	}
}
