package hf

import (
	"encoding/json"
	"fmt"
)

const (
	tokenizerFile       = "tokenizer.json"
	tokenizerConfigFile = "tokenizer_config.json"
)

// tokenizerConfig returns the text of a tokenizer_config.json for a tokenizer.json that
// comes without one. It makes transformers use the file as it is: otherwise it builds the
// model type's own tokenizer from parts of the file, which need not give the same ids.
// The special tokens are those whose ids c names.
func (c *Config) tokenizerConfig(tokenizer []byte) ([]byte, error) {
	var doc struct {
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(tokenizer, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", tokenizerFile, err)
	}
	out := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": c.Model.Positions()}
	for role, id := range map[string]int{"bos_token": c.BOS, "eos_token": c.EOS, "pad_token": c.Pad} {
		for _, t := range doc.Added {
			if t.ID == id {
				out[role] = t.Content
			}
		}
	}
	return indented(out)
}
