package hf

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// The table of every kind of rotary positions is transformers'.
func TestRopes(t *testing.T) {
	dir := filepath.Join("testdata", "rope")
	want, err := safetensors.Open(filepath.Join(dir, "rope.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	seen := map[string]bool{}
	for _, x := range want.Tensors() {
		text, err := os.ReadFile(filepath.Join(dir, x.Name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := ParseConfig(text)
		if err != nil {
			t.Fatal(err)
		}
		m := c.Model.(Llama)
		seen[m.Rope.Kind] = true
		r := arm(t, func(b *graph.Builder) { b.Output("table", b.Emit(m.Rope.table(x.Shape[0], m.HeadSize))[0]) })
		run(t, r, "forward")
		// The frequency is a float32: at the last position its error counts 64 times.
		if d := far(output(t, r, "forward", "table"), openF32(t, want, x.Name)); d > 64*0x1p-23 {
			t.Errorf("%s: cos and sin differ by %g", x.Name, d)
		}
	}
	if len(seen) != 5 {
		t.Errorf("only the kinds %v were tried", seen)
	}
}

// The loss of every update equals that of transformers' classes with the same weights and
// texts.
func TestLlamaCurves(t *testing.T) {
	for _, name := range []string{"llama", "qwen3"} {
		t.Run(name, func(t *testing.T) {
			const batch, time = 8, 11
			c, err := ReadConfig(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			m := c.Model.(Llama)
			p, err := engine.CompileTraining(engine.Training{
				Accumulation: 1,
				Optimizer:    engine.Optimizer{Beta1: .9, Beta2: .999, Eps: 1e-8, WeightDecay: .01, MaxGradNorm: 1},
				Model: func(b *graph.Builder, mode engine.Mode) engine.Objective {
					h := m.Hidden(b, Input{IDs: b.Input("ids", graph.T(graph.I32, batch, time)), Train: mode.Train})
					return engine.Objective{Sum: b.LinearCrossEntropy(b.Reshape(h, batch*time, m.D), m.Output(b),
						b.Input("labels", graph.T(graph.I32, batch*time)), b.Input("weights", graph.T(graph.F32, batch*time)), 32)}
				},
			}, engine.CompileOptions{Verify: true})
			if err != nil {
				t.Fatal(err)
			}
			r := armed(t, p)
			load(t, c, filepath.Join("testdata", name), r, LoadOptions{})
			trace, err := safetensors.Open(filepath.Join("testdata", name, "curve.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer trace.Close()
			raw, err := trace.Tensor("ids")
			if err != nil {
				t.Fatal(err)
			}
			texts := engine.Tensor{Data: append([]byte(nil), raw.Data...)}.I32()
			want, norms := openF32(t, trace, "loss"), openF32(t, trace, "gradient_norm")
			lr, _ := r.Input(0, engine.InputLR)
			inv, _ := r.Input(0, engine.InputInvWeight)
			weights, _ := r.Input(0, "weights")
			worst := 0.0
			for u := range want {
				var ids, labels []int32
				for row := range batch {
					text := texts[(u*batch+row)*(time+1):][:time+1]
					ids, labels = append(ids, text[:time]...), append(labels, text[1:]...)
				}
				setI32(t, r, "ids", ids)
				setI32(t, r, "labels", labels)
				lr.F32()[0], inv.F32()[0] = 1e-3, 1./(batch*time)
				for i := range weights.F32() {
					weights.F32()[i] = 1
				}
				run(t, r, engine.FuncStep)
				loss, norm := output(t, r, engine.FuncStep, engine.OutputLoss)[0], output(t, r, engine.FuncStep, engine.OutputGradNorm)[0]
				d := math.Abs(float64(loss - want[u]))
				if worst = max(worst, d); d > 1e-4 {
					t.Fatalf("update %d: loss %v, transformers has %v", u, loss, want[u])
				}
				if math.Abs(float64(norm-norms[u])) > 1e-3*float64(norms[u]) {
					t.Errorf("update %d: gradient norm %v, transformers has %v", u, norm, norms[u])
				}
			}
			t.Logf("%d updates, worst difference of a loss %.2g", len(want), worst)
		})
	}
}

// Keys of config.json that would change the computation are refused by name.
func TestLlamaRefusals(t *testing.T) {
	for _, c := range []struct{ folder, key, value, want string }{
		{"llama", "num_key_value_heads", "3", "4 heads of queries cannot share 3 of keys and values"},
		{"llama", "num_key_value_heads", "0", "cannot share 0"},
		{"llama", "head_dim", "7", "a head has 7 dimensions, want an even number"},
		{"llama", "hidden_size", "34", "width 34 does not divide into 4 heads"},
		{"llama", "rms_norm_eps", "0", "rms_norm_eps is 0, want more than 0"},
		{"llama", "hidden_act", `"relu6"`, `unknown activation "relu6"`},
		{"llama", "rope_interleaved", "true", "rope_interleaved: true is not supported"},
		{"llama", "partial_rotary_factor", "0.5", "partial_rotary_factor: 0.5 is not supported"},
		{"llama", "rope_parameters", `{"rope_type":"longrope","factor":2}`, `rope_parameters: scaling "longrope" of rotary`},
		{"llama", "rope_parameters", `{"rope_type":"longrope"}`, `scaling "longrope" of rotary positions is not supported: default, linear, dynamic, llama3 and yarn are`},
		{"llama", "rope_parameters", `{"rope_type":"linear"}`, "rope_parameters: want more than 0 for type linear, got 0"},
		{"llama", "rope_parameters", `{"rope_type":"default","factor":2}`, "rope_parameters: factor is not supported for type default"},
		{"llama", "rope_parameters", `{"rope_type":"llama3","factor":2,"low_freq_factor":4,"high_freq_factor":1,"original_max_position_embeddings":8}`, "want more than low_freq_factor (4)"},
		{"llama", "rope_parameters", `{"rope_type":"llama3","factor":2,"low_freq_factor":1,"high_freq_factor":4}`, "original_max_position_embeddings is missing"},
		{"llama", "rope_parameters", `{"full_attention":{"rope_type":"default"}}`, "full_attention is not supported"},
		{"llama", "rope_scaling", `{"type":"linear","factor":2}`, "rope_scaling and rope_parameters differ"},
		{"llama", "architectures", `["LlamaForSequenceClassification"]`, "LlamaModel, LlamaForCausalLM are"},
		{"qwen3", "use_sliding_window", "true", "use_sliding_window: true is not supported"},
		{"qwen3", "layer_types", `["full_attention","sliding_attention"]`, `"sliding_attention" of layer 1 is not supported`},
		{"qwen3", "quantization_config", `{"bits":4}`, "quantization_config: "},
	} {
		_, err := ParseConfig(changed(t, c.folder, map[string]string{c.key: c.value}))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s %s: got %v, want an error with %q", c.folder, c.key, c.value, err, c.want)
		}
	}
}

// Folders from before version 5 of transformers have rope_theta and rope_scaling.
func TestOlderLlama(t *testing.T) {
	c, err := ParseConfig(changed(t, "llama", map[string]string{
		"rope_parameters": "", "rope_theta": "500000.0", "num_key_value_heads": "", "head_dim": "", "attention_bias": "", "mlp_bias": "",
		"rope_scaling": `{"type":"linear","factor":2.0}`,
	}))
	if err != nil {
		t.Fatal(err)
	}
	m := c.Model.(Llama)
	if want := (Rope{Base: 500000, Kind: RopeLinear, Factor: 2}); m.Rope != want || m.KVHeads != 4 || m.HeadSize != 8 {
		t.Errorf("read %+v", m)
	}
}
