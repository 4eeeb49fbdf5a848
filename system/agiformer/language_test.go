package agiformer

import (
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/system"
)

// withFolder returns a net whose language experts read a model from the test folders of nn/hf.
func withFolder(t *testing.T, name string, frozen bool) Net {
	t.Helper()
	n := tiny(1, 0, "standard", "language")
	n.MaxPositions = 24
	n.Language = &Language{Folder: "../../nn/hf/testdata/" + name, Frozen: frozen}
	if err := n.Language.size(&LanguageModel{Path: n.Language.Folder, Frozen: frozen}, n.MaxPositions); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLanguageFolder: a folder's model is loaded once for all layers. If frozen, it does not change while
// everything else learns through it; otherwise it learns too. Neither kind sees later tokens.
func TestLanguageFolder(t *testing.T) {
	for _, folder := range []string{"neox", "neox-sharded", "gpt2", "llama", "llama-biases", "qwen3"} {
		for _, frozen := range []bool{true, false} {
			n := withFolder(t, folder, frozen)
			const batch, time = 4, 20
			p := training(t, n, system.Shape{MicroBatch: batch, Accumulation: 1}, time, engine.CompileOptions{})
			if len(p.Untrained) > 0 {
				t.Errorf("%s: no gradient reaches %v", folder, p.Untrained)
			}
			r := start(t, p)
			if err := n.load(r); err != nil {
				t.Fatal(err)
			}
			prefix := "language." + n.Language.base() + "."
			before := map[string][]float32{}
			for _, s := range p.States {
				if s.Role == graph.Weight || s.Role == graph.Frozen {
					x, _ := r.State(s.Name)
					before[s.Name] = slices.Clone(x.F32())
					if ours := strings.HasPrefix(s.Name, prefix); (s.Role == graph.Frozen) != (ours && frozen) {
						t.Errorf("%s, frozen %v: %s has the role %v", folder, frozen, s.Name, s.Role)
					}
				}
			}
			equalsFolder(t, n.Language.Folder, prefix, before)
			feed(r, text(batch*(time+1), n.Vocab), batch, time)
			for range 2 {
				if err := r.Run(engine.FuncStep, 0); err != nil {
					t.Fatal(err)
				}
			}
			for _, s := range p.States {
				if s.Role != graph.Weight && s.Role != graph.Frozen {
					continue
				}
				x, _ := r.State(s.Name)
				if moved := !slices.Equal(x.F32(), before[s.Name]); moved != (s.Role == graph.Weight) {
					t.Errorf("%s, frozen %v: %s moved: %v", folder, frozen, s.Name, moved)
				}
			}
		}
	}
}

// equalsFolder compares the weights below prefix with the tensors of a folder.
func equalsFolder(t *testing.T, dir, prefix string, weights map[string][]float32) {
	t.Helper()
	src, err := safetensors.OpenModel(dir, "model")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	}()
	checked := 0
	for _, info := range src.Tensors() {
		for name, w := range weights {
			if !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, info.Name) {
				continue
			}
			x, err := src.Tensor(info.Name)
			if err != nil {
				t.Fatal(err)
			}
			want := make([]float32, len(w))
			if err := x.Float32s(want); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(w, want) {
				t.Errorf("%s is not what %s holds", name, dir)
			}
			checked++
		}
	}
	if checked < 10 {
		t.Errorf("only %d tensors of %s were found", checked, dir)
	}
}

func TestLanguageFolderCausality(t *testing.T) {
	n := withFolder(t, "gpt2", true)
	const time = 17
	run := logits(t, n, 2, time)
	ids := text(2*time, n.Vocab)
	before := run(ids)
	ids[11]++
	after := run(ids)
	at := 11 * n.Vocab
	if !slices.Equal(before[:at], after[:at]) || !slices.Equal(before[time*n.Vocab:], after[time*n.Vocab:]) {
		t.Error("a change reaches back or across")
	}
	if slices.Equal(before[at:], after[at:]) {
		t.Error("a change does not show")
	}
}

// TestLanguageRefusals: a folder without a language model is rejected by name.
func TestLanguageRefusals(t *testing.T) {
	for _, c := range []struct {
		path      string
		positions int
		want      string
	}{
		{"../../nn/hf/testdata/bert", 8, "is not a GPT-NeoX, GPT-2, Llama or Qwen3 folder"},
		{"../../nn/hf/testdata/gpt2", 4000, "positions"},
		{"testdata", 8, "not a model folder"},
	} {
		err := (&Language{}).size(&LanguageModel{Path: c.path}, c.positions)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.path, err, c.want)
		}
	}
}
