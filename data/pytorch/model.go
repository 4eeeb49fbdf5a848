package pytorch

import "github.com/snug-ml/snug/data/safetensors"

// Suffix ends the name of a file.
const Suffix = ".bin"

// Model is a set of tensors kept in one file or in several shards.
type Model = safetensors.Sharded[*File]

// OpenModel opens the model called base in a folder: base.bin, or the shards
// that base.bin.index.json names. base is "pytorch_model" in folders of
// transformers.
func OpenModel(dir, base string) (*Model, error) {
	return safetensors.Format[*File]{
		Suffix: Suffix,
		Open:   Open,
		Wrong:  func(path, tensor, problem string) error { return &Error{Path: path, Tensor: tensor, Problem: problem} },
	}.OpenModel(dir, base)
}
