package refocused

import (
	"errors"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/engine/graph"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/system"
)

// export writes a checkpoint with its tokenizer as a model folder that transformers loads as
// GPTNeoXForCausalLM, LlamaForCausalLM or Qwen3ForCausalLM. If the checkpoint has adapters, it writes only
// them, in PEFT's layout.
func export(c *config.Config, dir, to string) ([]string, error) {
	if lora := config.Of[system.LoRA](c); len(lora.Targets) > 0 {
		return lora.ExportAdapter(dir, baseOf(c), &hf.Config{Model: networkOf(c), Head: hf.HeadCausal}, to)
	}
	return exportMerged(c, dir, to)
}

// exportMerged is export with adapters merged.
func exportMerged(c *config.Config, dir, to string) (files []string, err error) {
	t, err := token.LoadFolder(dir)
	if err != nil {
		return nil, err
	}
	w, err := openWeights(c, dir, config.Of[system.BaseWeights](c).Merged())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	model := hf.Config{Model: networkOf(c), Head: hf.HeadCausal, BOS: special(t, token.BOS), EOS: special(t, token.EOS), Pad: special(t, token.PAD)}
	return hf.Export(to, &model, w, hf.ExportOptions{TokenizerFrom: dir})
}

// openWeights opens the weights of a checkpoint. base is the format of frozen weights below adapters.
func openWeights(c *config.Config, dir string, base graph.DType) (system.ReadableWeights, error) {
	net := networkOf(c)
	return config.Of[system.LoRA](c).OpenWeights(dir, baseOf(c), base, func(b *graph.Builder) {
		net.Hidden(b, hf.Input{IDs: b.Input("ids", graph.T(graph.I32, 1, 1))})
		net.Output(b)
	})
}

// special returns the id of a special token, or -1 if the tokenizer has none.
func special(t *token.Tokenizer, r token.Role) int {
	if id, ok := t.Special(r); ok {
		return int(id)
	}
	return -1
}
