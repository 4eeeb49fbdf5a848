package hf

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn"
)

// adapterCases are the folders of testdata/lora and the models that they adapt.
var adapterCases = map[string]string{
	"llama-lora": "llama", "llama-dora": "llama", "qwen3-rslora": "qwen3", "neox-lora": "neox", "gpt2-dora": "gpt2",
	"bert-classifier-lora": "bert-classifier", "roberta-classifier-dora": "roberta-classifier",
}

// readAdapter opens an adapter of testdata. PEFT names the heads of all classifiers in
// modules_to_save, even those that the model does not have.
func readAdapter(t *testing.T, name string) (*nn.Adapters, Weights) {
	t.Helper()
	a, w, err := ReadAdapter(filepath.Join("testdata", "lora", name))
	if err != nil {
		t.Fatal(err)
	}
	a.Trained = slices.DeleteFunc(a.Trained, func(m string) bool { return m == "score" })
	return a, w
}

// adapterLogits returns the logits of a model of adapterCases for ids [2, 12]: one row
// for each of ids, or of texts.
func adapterLogits(b *graph.Builder, m Model, ids *graph.Value) *graph.Value {
	in := Input{IDs: ids}
	if m, ok := m.(BERT); ok {
		return m.Classify(b, in, m.Hidden(b, in))
	}
	return causalLogits(b, m.(Causal), in)
}

// Logits and gradients of adapted models equal PEFT's.
func TestAdapters(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(adapterCases)) {
		t.Run(name, func(t *testing.T) {
			const batch, time = 2, 12
			base, dir := filepath.Join("testdata", adapterCases[name]), filepath.Join("testdata", "lora", name)
			c, err := ReadConfig(base)
			if err != nil {
				t.Fatal(err)
			}
			a, weights := readAdapter(t, name)
			defer weights.Close()
			want, err := safetensors.Open(filepath.Join(dir, "expected.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer want.Close()
			rows := batch * time
			if c.Head == HeadClassifier {
				rows = batch
			}
			p, err := engine.CompileTraining(engine.Training{
				Accumulation: 2, // so that gradients are states
				Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8},
				Model: func(b *graph.Builder, _ engine.Mode) (o engine.Objective) {
					a.Build(b, false, func() {
						logits := adapterLogits(b, c.Model, b.Input("ids", graph.T(graph.I32, batch, time)))
						o.Sum = b.CrossEntropy(logits, b.Input("labels", graph.T(graph.I32, rows)), b.Input("weights", graph.T(graph.F32, rows)))
						o.Outputs = []graph.Output{{Name: "logits", Value: logits}}
					})
					return o
				},
			}, engine.CompileOptions{Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			r := armed(t, p)
			isNew := func(name string) bool { _, _, ok := nn.AdapterOf(name); return ok }
			load(t, c, base, r, LoadOptions{New: isNew})
			adapted := 0
			for _, s := range p.States {
				_, _, ok := nn.AdapterOf(s.Name)
				whole := slices.ContainsFunc(weights.Tensors(), func(i safetensors.Info) bool { return i.Name == s.Name })
				switch {
				case s.Role == graph.Weight && !ok && !whole:
					t.Errorf("%s is trained", s.Name)
				case s.Role == graph.Weight:
					adapted++
					if err := r.SetFloats(s.Name, openF32(t, weights, s.Name)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if adapted != len(weights.Tensors()) {
				t.Errorf("the model has %d weights of adapters, the folder %d", adapted, len(weights.Tensors()))
			}
			raw, err := want.Tensor("input_ids")
			if err != nil {
				t.Fatal(err)
			}
			ids := engine.Tensor{Data: raw.Data}.I32()
			labels, weight := make([]int32, rows), make([]float32, rows)
			for i := range rows {
				if rows == batch {
					labels[i], weight[i] = int32(i), 1
				} else if i%time < time-1 {
					labels[i], weight[i] = ids[i+1], 1
				}
			}
			setI32(t, r, "ids", ids)
			setI32(t, r, "labels", labels)
			in := func(name string) []float32 { x, _ := r.Input(0, name); return x.F32() }
			copy(in("weights"), weight)
			in(engine.InputInvWeight)[0], in(engine.InputMicro)[0] = 1, 1
			run(t, r, engine.FuncMicro)
			if d := far(output(t, r, engine.FuncMicro, "logits"), openF32(t, want, "logits")); d > 1e-4 {
				t.Errorf("logits differ by %g", d)
			}
			compared := 0
			for _, x := range want.Tensors() {
				theirs, ok := strings.CutPrefix(x.Name, "grad."+peftPrefix)
				if !ok {
					continue
				}
				ours := theirs
				for _, f := range peftFactors {
					if layer, ok := strings.CutSuffix(theirs, f.theirs); ok {
						ours = layer + f.ours
					}
				}
				g, err := r.State(engine.Gradient + ours)
				if err != nil {
					t.Fatal(err)
				}
				grad := openF32(t, want, x.Name)
				largest := 0.0
				for _, v := range grad {
					largest = max(largest, math.Abs(float64(v)))
				}
				if d := far(g.F32(), grad); d > 2e-5*largest {
					t.Errorf("the gradient of %s differs by %g of up to %g", ours, d, largest)
				}
				compared++
			}
			if compared != adapted {
				t.Errorf("%d gradients compared of %d", compared, adapted)
			}
		})
	}
}

// An adapter that was read is written unchanged, so that PEFT loads it.
func TestWriteAdapter(t *testing.T) {
	dir := filepath.Join("testdata", "lora", "gpt2-dora")
	c, err := ReadConfig(filepath.Join("testdata", "gpt2"))
	if err != nil {
		t.Fatal(err)
	}
	a, src, err := ReadAdapter(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	to := filepath.Join(t.TempDir(), "adapter")
	if _, err := c.WriteAdapter(to, a, "gpt2", src); err != nil {
		t.Fatal(err)
	}
	again, back, err := ReadAdapter(to)
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if again.LoRA != a.LoRA || !slices.Equal(again.Targets, a.Targets) {
		t.Errorf("read %+v, wrote %+v", again, a)
	}
	if len(back.Tensors()) != len(src.Tensors()) {
		t.Errorf("%d tensors of %d", len(back.Tensors()), len(src.Tensors()))
	}
	for _, x := range src.Tensors() {
		if d := far(openF32(t, back, x.Name), openF32(t, src, x.Name)); d != 0 {
			t.Errorf("%s differs by %g", x.Name, d)
		}
	}
	if _, err := c.WriteAdapter(to, a, "gpt2", src); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("written over: %v", err)
	}
}

// Features of an adapter that snug lacks are refused by name.
func TestReadAdapterRefuses(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join("testdata", "lora", "llama-lora", AdapterConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ old, new, want string }{
		{`"bias": "none"`, `"bias": "all"`, `bias is "all", want none`},
		{`"peft_type": "LORA"`, `"peft_type": "IA3"`, `peft_type is "IA3", want LORA`},
		{`"rank_pattern": {}`, `"rank_pattern": {"q_proj": 8}`, `rank_pattern is {"q_proj": 8}, which snug does not have`},
		{`"r": 3`, `"r": 0`, "r is 0, want 1"},
		{`"use_rslora": false`, `"use_rslora": true, "use_dora": true`, "one of them at a time"},
	} {
		text := strings.Replace(string(whole), test.old, test.new, 1)
		if test.old == `"use_rslora": false` {
			text = strings.Replace(text, `"use_dora": false`, `"use_dora": true`, 1)
		}
		if _, _, err := parseAdapter([]byte(text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.new, err, test.want)
		}
	}
}

// openAdapted opens the model folder dir with the trained weights.
func openAdapted(t *testing.T, c *Config, dir string, a Adapted) Weights {
	t.Helper()
	var err error
	if a.States, err = c.Weights(); err != nil {
		t.Fatal(err)
	}
	w, err := a.OpenFolder(c, dir, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A model with its adapters merged equals the adapted one.
func TestMergedAdapters(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(adapterCases)) {
		t.Run(name, func(t *testing.T) {
			base, dir := filepath.Join("testdata", adapterCases[name]), filepath.Join("testdata", "lora", name)
			c, err := ReadConfig(base)
			if err != nil {
				t.Fatal(err)
			}
			a, trained := readAdapter(t, name)
			defer trained.Close()
			w := openAdapted(t, c, base, Adapted{Trained: trained, LoRA: a.LoRA})
			defer w.Close()
			r := arm(t, func(b *graph.Builder) {
				b.Output("logits", adapterLogits(b, c.Model, b.Input("ids", graph.T(graph.I32, 2, 12))))
			})
			if _, err := c.LoadFrom(w, base, r.Program().States, r.ChangeState, LoadOptions{}); err != nil {
				t.Fatal(err)
			}
			want, err := safetensors.Open(filepath.Join(dir, "expected.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer want.Close()
			raw, err := want.Tensor("input_ids")
			if err != nil {
				t.Fatal(err)
			}
			setI32(t, r, "ids", engine.Tensor{Data: raw.Data}.I32())
			run(t, r, "forward")
			if d := far(output(t, r, "forward", "logits"), openF32(t, want, "logits")); d > 1e-4 {
				t.Errorf("logits differ by %g", d)
			}
		})
	}
}
