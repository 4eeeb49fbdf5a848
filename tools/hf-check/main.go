// Command hf-check writes model folders for check.py, which compares them with
// transformers: the folders of nn/hf/testdata loaded and exported again, and models
// with fresh weights in every shape that snug can make. Next to each is
// snug.safetensors with its ids and logits.
//
//	go run ./tools/hf-check OUT && python tools/hf-check/check.py OUT
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/engine"
	"github.com/snug-ml/snug/engine/backend"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/internal/tool"
	"github.com/snug-ml/snug/nn/hf"
)

const batch, length = 2, 11

type options struct {
	Out string `arg:"" help:"Folder to write."`
}

func main() {
	var o options
	tool.Main(&o, "hf-check", "Writes model folders for check.py, which compares them with transformers.", o.run)
}

func (o *options) run(context.Context) error {
	stored, err := filepath.Glob("nn/hf/testdata/*/config.json")
	if err != nil {
		return err
	}
	if len(stored) == 0 {
		return errors.New("no folders in nn/hf/testdata: run it from the top of the repository")
	}
	for _, config := range stored {
		dir := filepath.Dir(config)
		c, err := hf.ReadConfig(dir)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(o.Out, "again-"+filepath.Base(dir)), c, dir); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	for name, c := range fresh() {
		if err := write(filepath.Join(o.Out, "fresh-"+name), &c, ""); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// fresh are models as snug's own systems describe them.
func fresh() map[string]hf.Config {
	neox := hf.NeoX{Vocab: 97, D: 48, Layers: 3, Heads: 4, FF: 96, MaxPositions: 40, RotaryPct: .5, RotaryBase: 5000,
		Parallel: true, Activation: "gelu_tanh", Eps: 1e-5, InitStd: .2, Dropout: .1, AttentionDropout: .05}
	tied := neox
	tied.Tied, tied.Parallel, tied.RotaryPct, tied.Activation = true, false, 1, "gelu"
	gpt := hf.GPT2{Vocab: 97, D: 48, Layers: 3, Heads: 4, FF: 100, MaxPositions: 40, Activation: "gelu_new", Eps: 1e-5, InitStd: .2, Dropout: .1}
	untied := gpt
	untied.Untied, untied.Activation = true, "relu"
	llama := hf.Llama{Vocab: 97, D: 48, Layers: 3, Heads: 6, KVHeads: 2, HeadSize: 8, FF: 100, MaxPositions: 40, Activation: "silu", Eps: 1e-5, InitStd: .2,
		Rope: hf.Rope{Base: 10000, Kind: hf.RopeLlama3, Factor: 4, Original: 8, LowFreq: 1, HighFreq: 4}, Dropout: .1, AttentionDropout: .05}
	biased := llama
	biased.AttentionBias, biased.FFBias, biased.Tied, biased.Activation = true, true, true, "gelu_tanh"
	biased.Rope = hf.Rope{Base: 5000, Kind: hf.RopeYaRN, Factor: 5, Original: 8, BetaFast: 8, BetaSlow: .5, MScale: .7, MScaleAll: 1.1}
	linear := llama
	linear.Rope = hf.Rope{Base: 10000, Kind: hf.RopeLinear, Factor: 3}
	qwen := llama
	qwen.QKNorm, qwen.HeadSize, qwen.KVHeads, qwen.Tied, qwen.Rope = true, 10, 1, true, hf.Rope{Base: 1e6, Kind: hf.RopeDefault}
	bert := hf.BERT{Vocab: 97, D: 48, Layers: 3, Heads: 4, FF: 96, MaxPositions: 40, Types: 2, Activation: "gelu", Eps: 1e-12, InitStd: .2, Labels: 2}
	phobert := bert
	phobert.RoBERTa, phobert.Pad, phobert.Types, phobert.Eps = true, 1, 1, 1e-5
	open := bert
	open.Untied = true
	labels := []string{"valid", "invalid"}
	return map[string]hf.Config{
		"neox":                {Model: neox, Head: hf.HeadCausal, BOS: 0, EOS: 2, Pad: -1},
		"neox-tied":           {Model: tied, Head: hf.HeadCausal, BOS: -1, EOS: -1, Pad: -1},
		"neox-bare":           {Model: neox, Head: hf.HeadNone, BOS: 0, EOS: 2, Pad: -1},
		"gpt2":                {Model: gpt, Head: hf.HeadCausal, BOS: 2, EOS: 2, Pad: -1},
		"gpt2-untied":         {Model: untied, Head: hf.HeadCausal, BOS: 2, EOS: 2, Pad: -1},
		"llama":               {Model: llama, Head: hf.HeadCausal, BOS: 1, EOS: 2, Pad: -1},
		"llama-biases":        {Model: biased, Head: hf.HeadCausal, BOS: 1, EOS: 2, Pad: -1},
		"llama-linear":        {Model: linear, Head: hf.HeadCausal, BOS: 1, EOS: 2, Pad: -1},
		"llama-bare":          {Model: llama, Head: hf.HeadNone, BOS: 1, EOS: 2, Pad: -1},
		"qwen3":               {Model: qwen, Head: hf.HeadCausal, BOS: -1, EOS: -1, Pad: -1},
		"bert-classifier":     {Model: bert, Head: hf.HeadClassifier, Labels: labels, BOS: -1, EOS: -1},
		"bert-masked-untied":  {Model: open, Head: hf.HeadMasked, BOS: -1, EOS: -1},
		"phobert-classifier":  {Model: phobert, Head: hf.HeadClassifier, Labels: labels, BOS: 0, EOS: 2, Pad: 1},
		"phobert-masked":      {Model: phobert, Head: hf.HeadMasked, BOS: 0, EOS: 2, Pad: 1},
		"phobert-bare-pooled": {Model: phobert, Head: hf.HeadNone, BOS: 0, EOS: 2, Pad: 1},
	}
}

// write exports the model c, with the weights of the folder from (empty: fresh
// ones), and what snug computes with it.
func write(dir string, c *hf.Config, from string) (err error) {
	b := graph.NewBuilder("forward")
	err = graph.Catch(func() {
		r := c.Forward(b, hf.Input{IDs: b.Input("ids", graph.T(graph.I32, batch, length))})
		b.Output("last_hidden_state", r.Hidden)
		if r.Pooled != nil {
			b.Output("pooler_output", r.Pooled)
		}
		if r.Logits != nil {
			b.Output("logits", r.Logits)
		}
	})
	if err != nil {
		return err
	}
	p, err := engine.CompileForward(engine.CompileOptions{}, b.F)
	if err != nil {
		return err
	}
	r, err := p.Load(backend.CPU(0))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.Initialize(7); err != nil {
		return err
	}
	if err := perturb(r); err != nil {
		return err
	}
	if from != "" {
		if _, err := c.Load(from, p.States, r.ChangeState, hf.LoadOptions{}); err != nil {
			return err
		}
	}
	ids, _ := r.Input(0, "ids")
	for i := range ids.I32() {
		ids.I32()[i] = int32(3 + i*31%90)
	}
	if err := r.Run("forward", 0); err != nil {
		return err
	}
	files, err := hf.Export(dir, c, states{r}, hf.ExportOptions{})
	if err != nil {
		return err
	}
	seen := []safetensors.Entry{{Name: "input_ids", DType: safetensors.I32, Shape: []int{batch, length}, Data: slices.Clone(ids.Data)}}
	for _, o := range b.F.Outputs {
		t, err := r.Output("forward", o.Name)
		if err != nil {
			return err
		}
		seen = append(seen, safetensors.Entry{Name: o.Name, DType: safetensors.F32, Shape: t.Type.Shape, Data: t.Data})
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return errors.New("tensors of this machine are not little-endian")
	}
	fmt.Println(dir, files)
	return safetensors.WriteFile(filepath.Join(dir, "snug.safetensors"), seen, nil)
}

// perturb changes biases and norm weights from their initial zeros and ones, so
// that a swap of two of them shows.
func perturb(r *engine.Executable) error {
	for k, s := range r.Program().States {
		if len(s.Type.Shape) != 1 {
			continue
		}
		err := r.ChangeState(s.Name, func(x []float32) error {
			for i := range x {
				x[i] += float32((i*7+k*5)%13-6) / 40
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// states are the weights of a loaded program as a source of tensors.
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
		if st.Role == graph.Weight {
			list = append(list, safetensors.Info{Name: st.Name, DType: safetensors.F32, Shape: st.Type.Shape})
		}
	}
	return list
}
