package hf

import (
	"testing"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/graph"
)

// Logits of folders whose linear layers are quantized equal those of transformers with
// bitsandbytes' weights (tools/goldens/quant.py), both read by matmuls as stored and
// decoded beforehand.
func TestQuantizedLogits(t *testing.T) {
	want, err := safetensors.Open("testdata/quant.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	for _, name := range []string{"llama", "qwen3", "neox"} {
		for _, d := range []graph.DType{graph.NF4, graph.Int8} {
			t.Run(name+"/"+d.String(), func(t *testing.T) {
				dir := "testdata/" + name
				c, err := ReadConfig(dir)
				if err != nil {
					t.Fatal(err)
				}
				raw, err := want.Tensor(name + ".ids")
				if err != nil {
					t.Fatal(err)
				}
				ids, logits := engine.Tensor{Data: raw.Data}.I32(), openF32(t, want, name+"."+d.String()+".logits")
				m := c.Model.(Causal)
				model := func(b *graph.Builder) *graph.Value {
					return causalLogits(b, m, Input{IDs: b.Input("ids", graph.T(graph.I32, 2, 12))})
				}
				p, err := engine.CompileEvaluation(engine.Training{Frozen: d, Model: func(b *graph.Builder, _ engine.Mode) (o engine.Objective) {
					y := model(b)
					for _, v := range b.F.States {
						v.State.Role = graph.Frozen
					}
					o.Sum = b.Sum(b.Reshape(y, -1), 0)
					o.Outputs = []graph.Output{{Name: "logits", Value: y}}
					return o
				}}, engine.CompileOptions{Verify: true})
				if err != nil {
					t.Fatal(err)
				}
				quantized := 0
				for _, s := range p.States {
					if s.Type.DType == d {
						quantized++
					}
				}
				if quantized < 4*2 {
					t.Errorf("%d matrices are %v", quantized, d)
				}
				r := armed(t, p)
				if _, err := c.Load(dir, p.States, r.ChangeState, LoadOptions{}); err != nil {
					t.Fatal(err)
				}
				setI32(t, r, "ids", ids)
				run(t, r, engine.FuncEval)
				if off := far(output(t, r, engine.FuncEval, "logits"), logits); off > 1e-4 {
					t.Errorf("logits differ by %g", off)
				}

				w := openAdapted(t, c, dir, Adapted{Trained: nothing{}, Frozen: d})
				defer w.Close()
				r = arm(t, func(b *graph.Builder) { b.Output("logits", model(b)) })
				if _, err := c.LoadFrom(w, dir, r.Program().States, r.ChangeState, LoadOptions{}); err != nil {
					t.Fatal(err)
				}
				setI32(t, r, "ids", ids)
				run(t, r, "forward")
				if off := far(output(t, r, "forward", "logits"), logits); off > 1e-4 {
					t.Errorf("decoded beforehand, logits differ by %g", off)
				}
			})
		}
	}
}

// nothing is a checkpoint without weights.
type nothing struct{}

func (nothing) Tensors() []safetensors.Info                     { return nil }
func (nothing) Tensor(string) (t safetensors.Tensor, err error) { return t, err }
