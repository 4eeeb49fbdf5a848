package hf

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// states is the weights of a loaded program as a source of tensors.
type states struct{ r *engine.Executable }

func (s states) Tensor(name string) (safetensors.Tensor, error) {
	t, err := s.r.State(name)
	if err != nil {
		return safetensors.Tensor{}, err
	}
	return safetensors.Tensor{Info: safetensors.Info{Name: name, DType: safetensors.F32, Shape: t.Type.Shape}, Data: t.Data}, nil
}

func (s states) Tensors() []safetensors.Info {
	var list []safetensors.Info
	for _, st := range s.r.Program().States {
		if st.Role == graph.Weight || st.Role == graph.Frozen {
			list = append(list, safetensors.Info{Name: st.Name, DType: safetensors.F32, Shape: st.Type.Shape})
		}
	}
	return list
}

// A model that is loaded, exported and loaded again has the same bits and the same
// description, and a bare model's tensors keep their names.
func TestRoundTrip(t *testing.T) {
	for _, name := range folders {
		t.Run(name, func(t *testing.T) {
			f := openFolder(t, name)
			r, _ := f.forward(t, true)
			dir := filepath.Join(t.TempDir(), "model")
			shard := int64(0)
			if name == "neox-sharded" {
				shard = 60_000
			}
			files, err := Export(dir, f.Config, states{r}, ExportOptions{ShardBytes: shard, Files: map[string][]byte{"special_tokens_map.json": []byte("{}")}})
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range files {
				if !IsFolderFile(name) {
					t.Errorf("%s was written, but would not be fetched", name)
				}
			}
			if n := 3 + 2*int(shard/60_000); len(files) != n {
				t.Errorf("%d files were written, want %d: %v", len(files), n, files)
			}
			again, err := ReadConfig(dir)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(f.Config, again); d != "" {
				t.Errorf("config.json says something else now (- before, + after):\n%s", d)
			}
			g := &folder{Config: again, dir: dir, expected: f.expected}
			r2, _ := g.forward(t, true)
			for _, s := range r.Program().States {
				a, _ := r.State(s.Name)
				b, _ := r2.State(s.Name)
				if !bytes.Equal(a.Data, b.Data) {
					t.Errorf("%s came back with other bits", s.Name)
				}
			}
			if !slices.Equal(output(t, r, "forward", "last_hidden_state"), output(t, r2, "forward", "last_hidden_state")) {
				t.Error("the hidden states have other bits")
			}
			if d := cmp.Diff(weightNames(t, f.family(), f.dir), weightNames(t, f.family(), dir)); d != "" {
				t.Errorf("tensors have other names (- before, + after):\n%s", d)
			}
		})
	}
}

// weightNames returns the tensors of a folder except buffers.
func weightNames(t *testing.T, f *family, dir string) []string {
	t.Helper()
	m, err := safetensors.OpenModel(dir, "model")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}()
	var names []string
	for _, info := range m.Tensors() {
		if !slices.ContainsFunc(f.buffers, func(end string) bool { return strings.HasSuffix(info.Name, end) }) {
			names = append(names, info.Name)
		}
	}
	return names
}

// A folder is exported straight from another, in float32 and with its tokenizer.
func TestExportFromFolder(t *testing.T) {
	f := openFolder(t, "neox")
	src, err := safetensors.OpenModel(f.dir, "model")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}()
	from := t.TempDir()
	for name, text := range map[string]string{"vocab.json": "{}", "merges.txt": "#", "README.md": "not a tokenizer"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "a", "b")
	files, err := Export(dir, f.Config, halved{src}, ExportOptions{TokenizerFrom: from, Files: map[string][]byte{"merges.txt": []byte("other")}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"config.json", "merges.txt", "model.safetensors", "vocab.json"}; !slices.Equal(files, want) {
		t.Errorf("files are %v, want %v", files, want)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "merges.txt")); err != nil || string(text) != "other" {
		t.Errorf("merges.txt holds %q (%v), want what Files says", text, err)
	}
	out, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	}()
	x, err := out.Tensor("embed_out.weight")
	if err != nil || x.DType != safetensors.F32 {
		t.Fatalf("embed_out.weight is %v (%v), want F32", x.DType, err)
	}
	y, err := halved{src}.Tensor("embed_out.weight")
	if err != nil {
		t.Fatal(err)
	}
	a, b := make([]float32, len(x.Data)/4), make([]float32, len(x.Data)/4)
	if err := errors.Join(x.Float32s(a), y.Float32s(b)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a, b) {
		t.Error("bfloat16 weights changed on their way to float32")
	}
	list, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(list) != 1 {
		t.Errorf("next to the folder there is %v (%v), want nothing", list, err)
	}
}

// halved stores every tensor of a source as bfloat16.
type halved struct{ Source }

func (h halved) Tensor(name string) (safetensors.Tensor, error) {
	t, err := h.Source.Tensor(name)
	var cut []byte
	for i := 0; i < len(t.Data); i += 4 {
		cut = append(cut, t.Data[i+2:i+4]...)
	}
	t.DType, t.Data = safetensors.BF16, cut
	return t, err
}

func (h halved) Tensors() []safetensors.Info {
	list := h.Source.Tensors()
	for i := range list {
		list[i].DType = safetensors.BF16
	}
	return list
}

func TestFolderFiles(t *testing.T) {
	for _, name := range []string{"pytorch_model.bin", "model.onnx", "onnx/config.json", "model-1.safetensors", "README.md", "optimizer.safetensors"} {
		if IsFolderFile(name) {
			t.Errorf("%s is taken for a part of a model folder", name)
		}
	}
}

func TestExportRefuses(t *testing.T) {
	f := openFolder(t, "bert-classifier")
	r, _ := f.forward(t, true)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	masked := *f.Config
	masked.Head = HeadMasked
	drop := func(name string) bool { return strings.HasPrefix(name, "classifier.") }
	for _, c := range []struct {
		name   string
		dir    string
		config *Config
		o      ExportOptions
		want   string
	}{
		{"a folder in use", full, f.Config, ExportOptions{}, "is not empty"},
		{"a path", "", f.Config, ExportOptions{Files: map[string][]byte{"../x": nil}}, `"../x" is not a plain file name`},
		{"no tokenizer", "", f.Config, ExportOptions{TokenizerFrom: full}, "has no tokenizer"},
		{"weights that are not there", "", &masked, ExportOptions{}, "missing: cls.predictions.transform.dense.weight"},
		{"weights that were dropped", "", f.Config, ExportOptions{Drop: drop}, "missing: classifier.weight, classifier.bias"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := c.dir
			if dir == "" {
				dir = filepath.Join(t.TempDir(), "model")
			}
			_, err := Export(dir, c.config, states{r}, c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if list, _ := os.ReadDir(filepath.Dir(dir)); c.dir == "" && len(list) > 0 {
				t.Errorf("left behind: %v", list)
			}
		})
	}
	if list, _ := os.ReadDir(full); len(list) != 1 {
		t.Errorf("the folder in use holds %v now", list)
	}
}

// If output and embedding are two weights, transformers reads the bias of BERT's masked
// language model head under a second name: both are written.
func TestUntiedBiasIsWrittenTwice(t *testing.T) {
	f := openFolder(t, "bert-masked")
	m := f.Model.(BERT)
	m.Untied = true
	c := *f.Config
	c.Model = m
	r := program(t, &c)
	dir := filepath.Join(t.TempDir(), "model")
	if _, err := Export(dir, &c, states{r}, ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	again, err := ReadConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	report := load(t, again, dir, program(t, again), LoadOptions{})
	if !slices.Equal(report.Repeated, []string{"cls.predictions.decoder.bias"}) || report.Loaded != 43 {
		t.Errorf("report: %v", report.Lines())
	}
}

// A tokenizer.json gets the tokenizer_config.json that makes transformers use it as it
// is; an existing one is kept.
func TestTokenizerConfig(t *testing.T) {
	f := openFolder(t, "roberta-classifier")
	r, _ := f.forward(t, true)
	tokenizer := []byte(`{"added_tokens": [{"id": 0, "content": "<s>"}, {"id": 1, "content": "<pad>"}, {"id": 9, "content": "other"}]}`)
	for _, c := range []struct{ given, want string }{
		{"", "{\n  \"bos_token\": \"<s>\",\n  \"model_max_length\": 32,\n  \"pad_token\": \"<pad>\",\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n"},
		{"{}", "{}"},
	} {
		files := map[string][]byte{"tokenizer.json": tokenizer}
		if c.given != "" {
			files["tokenizer_config.json"] = []byte(c.given)
		}
		dir := filepath.Join(t.TempDir(), "model")
		if _, err := Export(dir, f.Config, states{r}, ExportOptions{Files: files}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
		if err != nil || string(text) != c.want {
			t.Errorf("tokenizer_config.json is %q (%v), want %q", text, err, c.want)
		}
	}
	_, err := Export(filepath.Join(t.TempDir(), "model"), f.Config, states{r}, ExportOptions{Files: map[string][]byte{"tokenizer.json": []byte("x")}})
	if err == nil || !strings.Contains(err.Error(), "tokenizer.json: ") {
		t.Errorf("a tokenizer.json that is none: %v", err)
	}
}
