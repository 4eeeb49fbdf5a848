package hf

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// program of a model and head, to load into.
func program(t *testing.T, c *Config) *engine.Executable {
	t.Helper()
	return arm(t, func(b *graph.Builder) {
		res := c.Forward(b, Input{IDs: b.Input("ids", graph.T(graph.I32, 1, 4))})
		b.Output("hidden", res.Hidden)
		if res.Logits != nil {
			b.Output("logits", res.Logits)
		}
		if res.Pooled != nil {
			b.Output("pooled", res.Pooled)
		}
	})
}

// with returns the config with another head.
func (f *folder) with(head Head, labels ...string) *Config {
	c := *f.Config
	c.Head, c.Labels = head, labels
	if m, ok := c.Model.(BERT); ok {
		m.Labels = len(labels)
		c.Model = m
	}
	return &c
}

// A classifier starts from a masked language model, as PhoBERT is: the new head keeps its
// initial values, the old one is left out, both reported by name.
func TestNewHead(t *testing.T) {
	f := openFolder(t, "roberta-masked")
	c := f.with(HeadClassifier, "clean", "offensive")
	r := program(t, c)
	before := slices.Clone(memory(r)("classifier.out_proj.weight"))
	_, err := c.Load(f.dir, r.Program().States, r.ChangeState, LoadOptions{})
	var m *Mismatch
	if !errors.As(err, &m) || !slices.Contains(m.Missing, "classifier.dense.weight") || !slices.Contains(m.Surplus, "lm_head.dense.weight") {
		t.Fatalf("without leave: %v", err)
	}
	report := load(t, c, f.dir, r, LoadOptions{NewHead: true})
	if want := []string{"classifier.dense.bias", "classifier.dense.weight", "classifier.out_proj.bias", "classifier.out_proj.weight"}; !slices.Equal(slices.Sorted(slices.Values(report.New)), want) {
		t.Errorf("new are %v, want %v", report.New, want)
	}
	if want := []string{"lm_head.bias", "lm_head.dense.bias", "lm_head.dense.weight", "lm_head.layer_norm.bias", "lm_head.layer_norm.weight"}; !slices.Equal(report.Left, want) {
		t.Errorf("left are %v, want %v", report.Left, want)
	}
	if !slices.Equal(before, memory(r)("classifier.out_proj.weight")) {
		t.Error("the new head did not keep its values")
	}
	text := strings.Join(report.Lines(), "\n")
	for _, want := range []string{"loaded 37 weights", "new, with initial values: classifier.dense.weight", "left in the folder: lm_head.bias"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing from the report:\n%s", want, text)
		}
	}
}

// A classifier with other labels keeps the pooler and initializes the rest.
func TestOtherLabels(t *testing.T) {
	f := openFolder(t, "bert-classifier")
	c := f.with(HeadClassifier, "yes", "no")
	r := program(t, c)
	report := load(t, c, f.dir, r, LoadOptions{NewHead: true})
	if want := []string{"classifier.weight", "classifier.bias"}; !slices.Equal(report.New, want) || !slices.Equal(report.Left, want) {
		t.Errorf("new %v and left %v, want %v", report.New, report.Left, want)
	}
	_, err := c.Load(f.dir, r.Program().States, r.ChangeState, LoadOptions{})
	if err == nil || !strings.Contains(err.Error(), "classifier.weight is [3 32], the model wants [2,32]") {
		t.Errorf("without leave: %v", err)
	}
}

func TestVocabularyIsResized(t *testing.T) {
	for _, to := range []int{140, 160} {
		f := openFolder(t, "neox")
		m := f.Model.(NeoX)
		from := m.Vocab
		m.Vocab = to
		c := *f.Config
		c.Model = m
		r := program(t, &c)
		first := slices.Clone(memory(r)("embed_out.weight"))
		if _, err := c.Load(f.dir, r.Program().States, r.ChangeState, LoadOptions{}); err == nil || !strings.Contains(err.Error(), "embed_out.weight is [150 32]") {
			t.Errorf("without leave: %v", err)
		}
		if !slices.Equal(first, memory(r)("embed_out.weight")) {
			t.Error("a refused folder changed the program")
		}
		report := load(t, &c, f.dir, r, LoadOptions{ResizeVocabulary: true})
		want := []Resize{{"gpt_neox.embed_in.weight", from, to}, {"embed_out.weight", from, to}}
		if !slices.Equal(report.Resized, want) {
			t.Errorf("resized %v, want %v", report.Resized, want)
		}
		src, err := safetensors.Open(filepath.Join(f.dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		had := openF32(t, src, "embed_out.weight")
		if err := src.Close(); err != nil {
			t.Fatal(err)
		}
		now := memory(r)("embed_out.weight")
		both := min(from, to) * m.D
		if !slices.Equal(now[:both], had[:both]) || !slices.Equal(now[both:], first[both:]) {
			t.Errorf("%d rows: want those of the folder, then initial ones", to)
		}
	}
}

// edited returns a folder's model with tensors changed, written to a new folder.
func edited(t *testing.T, from string, change func(e []safetensors.Entry) []safetensors.Entry) string {
	t.Helper()
	src, err := safetensors.Open(filepath.Join("testdata", from, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}()
	var entries []safetensors.Entry
	for _, info := range src.Tensors() {
		x, err := src.Tensor(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, safetensors.Entry{Name: x.Name, DType: x.DType, Shape: x.Shape, Data: slices.Clone(x.Data)})
	}
	dir := t.TempDir()
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), change(entries), nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func find(entries []safetensors.Entry, name string) *safetensors.Entry {
	i := slices.IndexFunc(entries, func(e safetensors.Entry) bool { return e.Name == name })
	return &entries[i]
}

// Names and repetitions that folders of different ages have.
func TestOldNames(t *testing.T) {
	f := openFolder(t, "bert-masked")
	dir := edited(t, "bert-masked", func(entries []safetensors.Entry) []safetensors.Entry {
		for i := range entries {
			e := &entries[i]
			e.Name = strings.Replace(e.Name, "LayerNorm.weight", "LayerNorm.gamma", 1)
			e.Name = strings.Replace(e.Name, "LayerNorm.bias", "LayerNorm.beta", 1)
		}
		words, bias := *find(entries, "bert.embeddings.word_embeddings.weight"), *find(entries, "cls.predictions.bias")
		words.Name, bias.Name = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
		ids := safetensors.Entry{Name: "bert.embeddings.position_ids", DType: safetensors.I64, Shape: []int{1, 2}, Data: make([]byte, 16)}
		nsp := safetensors.Entry{Name: "cls.seq_relationship.bias", DType: safetensors.F32, Shape: []int{2}, Data: make([]byte, 8)}
		return append(entries, words, bias, ids, nsp)
	})
	r := program(t, f.Config)
	_, err := f.Load(dir, r.Program().States, r.ChangeState, LoadOptions{})
	if err == nil || !strings.HasSuffix(err.Error(), "surplus: cls.seq_relationship.bias") {
		t.Errorf("the head of another task: %v", err)
	}
	report := load(t, f.Config, dir, r, LoadOptions{NewHead: true})
	if !slices.Equal(report.Repeated, []string{"cls.predictions.decoder.bias", "cls.predictions.decoder.weight"}) ||
		!slices.Equal(report.Buffers, []string{"bert.embeddings.position_ids"}) || !slices.Equal(report.Left, []string{"cls.seq_relationship.bias"}) {
		t.Errorf("report: %v", report.Lines())
	}
	plain := program(t, f.Config)
	load(t, f.Config, f.dir, plain, LoadOptions{})
	for _, s := range r.Program().States {
		if !slices.Equal(memory(r)(s.Name), memory(plain)(s.Name)) {
			t.Errorf("%s differs", s.Name)
		}
	}
}

func TestMismatch(t *testing.T) {
	const words = "transformer.wte.weight"
	for _, c := range []struct {
		name   string
		change func(e []safetensors.Entry) []safetensors.Entry
		want   string
	}{
		{"missing", func(e []safetensors.Entry) []safetensors.Entry {
			return slices.DeleteFunc(e, func(e safetensors.Entry) bool { return e.Name == "transformer.h.1.ln_2.bias" })
		}, "missing: transformer.h.1.ln_2.bias"},
		{"surplus", func(e []safetensors.Entry) []safetensors.Entry {
			extra := *find(e, "transformer.ln_f.bias")
			extra.Name = "transformer.h.2.ln_1.bias"
			return append(e, extra)
		}, "surplus: transformer.h.2.ln_1.bias"},
		{"shape", func(e []safetensors.Entry) []safetensors.Entry {
			find(e, "transformer.h.0.attn.c_attn.weight").Shape = []int{96, 32}
			return e
		}, "shape: transformer.h.0.attn.c_attn.weight is [96 32], the model wants [32,96]"},
		{"tied but different", func(e []safetensors.Entry) []safetensors.Entry {
			head := *find(e, words)
			head.Name, head.Data = "lm_head.weight", slices.Clone(head.Data)
			head.Data[5] ^= 1
			return append(e, head)
		}, "(is tie_word_embeddings right in config.json?): lm_head.weight (of transformer.wte.weight)"},
		{"integers", func(e []safetensors.Entry) []safetensors.Entry {
			find(e, words).DType = safetensors.I32
			return e
		}, "I32 cannot be read as float32"},
		{"two names for one", func(e []safetensors.Entry) []safetensors.Entry {
			for i := range e {
				e[i].Name = strings.TrimPrefix(e[i].Name, "transformer.")
			}
			twin := *find(e, "ln_f.bias")
			twin.Name = "ln_f.LayerNorm.gamma"
			other := twin
			other.Name = "ln_f.LayerNorm.weight"
			return append(e, twin, other)
		}, "tensors ln_f.LayerNorm.gamma and ln_f.LayerNorm.weight are both transformer.ln_f.LayerNorm.weight"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := openFolder(t, "gpt2")
			r := program(t, f.Config)
			_, err := f.Load(edited(t, "gpt2", c.change), r.Program().States, r.ChangeState, LoadOptions{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// A bare folder of GPT-2 (the names that OpenAI's has) loads into the model with a head.
func TestBareNames(t *testing.T) {
	f := openFolder(t, "gpt2")
	dir := edited(t, "gpt2", func(e []safetensors.Entry) []safetensors.Entry {
		for i := range e {
			e[i].Name = strings.TrimPrefix(e[i].Name, "transformer.")
		}
		mask := safetensors.Entry{Name: "h.0.attn.bias", DType: safetensors.F32, Shape: []int{1, 1, 1, 1}, Data: make([]byte, 4)}
		return append(e, mask)
	})
	r := program(t, f.Config)
	report := load(t, f.Config, dir, r, LoadOptions{})
	if report.Loaded != 28 || !slices.Equal(report.Buffers, []string{"h.0.attn.bias"}) {
		t.Errorf("report: %v", report.Lines())
	}
}

// torchFolder is a folder of testdata with its weights as torch.save wrote them.
func torchFolder(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	weights := os.DirFS(filepath.Join("testdata", "torch", name))
	if err := os.CopyFS(dir, weights); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", name, ConfigFile))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, ConfigFile), text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Weights from torch.save's files are those from safetensors, bit for bit.
func TestPyTorchWeights(t *testing.T) {
	for _, name := range []string{"gpt2", "neox-sharded"} {
		t.Run(name, func(t *testing.T) {
			f := openFolder(t, name)
			want, got := program(t, f.Config), program(t, f.Config)
			load(t, f.Config, f.dir, want, LoadOptions{})
			report := load(t, f.Config, torchFolder(t, name), got, LoadOptions{})
			if tied := []string{"lm_head.weight"}; name == "gpt2" && !slices.Equal(report.Repeated, tied) {
				t.Errorf("repeated are %v, want %v", report.Repeated, tied)
			}
			for _, s := range want.Program().States {
				if !slices.Equal(memory(want)(s.Name), memory(got)(s.Name)) {
					t.Errorf("%s differs", s.Name)
				}
			}
		})
	}
}

func TestOtherWeightsAreNamed(t *testing.T) {
	f := openFolder(t, "gpt2")
	r := program(t, f.Config)
	for file, want := range map[string]string{
		"pytorch_model.bin":            "pytorch_model.bin: the file is empty: fetch it again",
		"pytorch_model.bin.index.json": "pytorch_model.bin.index.json: is not a JSON index",
		"tf_model.h5":                  "tf_model.h5 is not read: save the model as safetensors first",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := f.Load(dir, r.Program().States, r.ChangeState, LoadOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
