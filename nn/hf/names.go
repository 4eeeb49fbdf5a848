package hf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/pytorch"
	"github.com/snug-ml/snug/data/safetensors"
)

// Source holds tensors by name: a [safetensors.File], a [safetensors.Model] or
// what [OpenWeights] opens.
type Source interface {
	Tensor(name string) (safetensors.Tensor, error)
	Tensors() []safetensors.Info
}

// place is a tensor of a source under the model's name for it.
type place struct {
	info safetensors.Info // with the source's name
	// buffer marks a tensor that is not a weight.
	buffer bool
}

// places returns the tensors of src by the names of the model's weights. Folders of a
// bare model leave its scope out, and the oldest BERT folders call the weights of norms
// gamma and beta.
func (f *family) places(src Source) (map[string]place, error) {
	infos := src.Tensors()
	prefix := f.base + "."
	bare := !slices.ContainsFunc(infos, func(t safetensors.Info) bool { return strings.HasPrefix(t.Name, prefix) })
	places := make(map[string]place, len(infos))
	for _, t := range infos {
		name := t.Name
		if bare && !f.inHead(name) {
			name = prefix + name
		}
		if s, ok := strings.CutSuffix(name, "LayerNorm.gamma"); ok {
			name = s + "LayerNorm.weight"
		}
		if s, ok := strings.CutSuffix(name, "LayerNorm.beta"); ok {
			name = s + "LayerNorm.bias"
		}
		if twice, ok := places[name]; ok {
			return nil, fmt.Errorf("tensors %s and %s are both %s", twice.info.Name, t.Name, name)
		}
		buffer := slices.ContainsFunc(f.buffers, func(end string) bool { return strings.HasSuffix(name, end) })
		places[name] = place{info: t, buffer: buffer}
	}
	return places, nil
}

// inHead reports whether a tensor belongs to a head.
func (f *family) inHead(name string) bool {
	return slices.ContainsFunc(f.head, func(scope string) bool { return strings.HasPrefix(name, scope) })
}

// repeats returns the name of the tensor that name repeats, or empty.
func (f *family) repeats(name string, tied bool) string {
	if tied && slices.Contains(f.tied, name) {
		return f.embedding
	}
	return f.twin[name]
}

// IsFolderFile reports whether name is one of the files that a model folder is read from:
// config.json, weights as safetensors, the tokenizer. They are enough of a repository
// that holds the same weights in several formats.
func IsFolderFile(name string) bool {
	return name == ConfigFile || slices.Contains(TokenizerFiles, name) || ofWeights(name, weightsName, safetensors.Suffix)
}

// tied reports whether output and embedding are one weight.
func (c *Config) tied() bool {
	switch m := c.Model.(type) {
	case NeoX:
		return m.Tied
	case Llama:
		return m.Tied
	case GPT2:
		return !m.Untied
	case BERT:
		return !m.Untied
	}
	return false
}

// weightsNames are the base names of the weights in a model folder.
const (
	weightsName      = "model"
	torchWeightsName = "pytorch_model"
)

// IsTorchFile reports whether name is one of torch.save's files in a model folder, which
// are read if there are no safetensors.
func IsTorchFile(name string) bool {
	return ofWeights(name, torchWeightsName, pytorch.Suffix)
}

// ofWeights reports whether name is the file of a model's weights, one of its shards or
// their index.
func ofWeights(name, base, suffix string) bool {
	shard, err := path.Match(base+"-*-of-*"+suffix, name)
	return name == base+suffix || name == base+suffix+safetensors.IndexSuffix || err == nil && shard
}

// Weights are the open tensors of a model folder.
type Weights interface {
	Source
	io.Closer
}

// OpenWeights opens the tensors of a model folder: safetensors, otherwise
// pytorch_model.bin or its shards.
func OpenWeights(dir string) (Weights, error) {
	m, err := safetensors.OpenModel(dir, weightsName)
	if err == nil {
		return m, nil
	}
	if !errors.Is(err, os.ErrNotExist) || holds(dir, weightsName+safetensors.Suffix+safetensors.IndexSuffix) {
		return nil, err
	}
	if holds(dir, torchWeightsName+pytorch.Suffix) || holds(dir, torchWeightsName+pytorch.Suffix+safetensors.IndexSuffix) {
		return pytorch.OpenModel(dir, torchWeightsName)
	}
	for _, name := range []string{"tf_model.h5", "flax_model.msgpack"} {
		if holds(dir, name) {
			return nil, fmt.Errorf("%s: %s is not read: save the model as safetensors first, with transformers' save_pretrained: %w", dir, name, err)
		}
	}
	return nil, err
}

func holds(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
