package refocused

import (
	"errors"
	"path/filepath"

	"github.com/snug-ml/snug/config"
	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/nn/hf"
	"github.com/snug-ml/snug/train/checkpoint"
)

// export writes a checkpoint as a model folder that transformers loads as
// GPTNeoXForCausalLM, LlamaForCausalLM or Qwen3ForCausalLM, with its tokenizer.
func export(c *config.Config, dir, to string) (files []string, err error) {
	t, err := token.LoadFolder(dir)
	if err != nil {
		return nil, err
	}
	w, err := safetensors.Open(filepath.Join(dir, checkpoint.WeightsFile))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	model := hf.Config{Model: networkOf(c), Head: hf.HeadCausal, BOS: special(t, token.BOS), EOS: special(t, token.EOS), Pad: special(t, token.PAD)}
	return hf.Export(to, &model, w, hf.ExportOptions{TokenizerFrom: dir})
}

// special is the id of a special token, -1 if the tokenizer has none.
func special(t *token.Tokenizer, r token.Role) int {
	if id, ok := t.Special(r); ok {
		return int(id)
	}
	return -1
}
