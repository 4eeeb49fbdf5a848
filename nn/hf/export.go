package hf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snug-ml/snug/data/safetensors"
	"github.com/snug-ml/snug/data/token"
	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// TokenizerFiles are the files of a model folder that hold its tokenizer.
var TokenizerFiles = []string{
	tokenizerFile, tokenizerConfigFile, "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "vocab.txt", "bpe.codes",
}

// ExportOptions say what goes into a folder in addition to the model.
type ExportOptions struct {
	// TokenizerFrom is a folder whose TokenizerFiles are copied; empty for none.
	TokenizerFrom string
	// Files are further files by name; one of them replaces a copied one.
	Files map[string][]byte
	// Drop, when set, selects tensors of the source to leave out. Any other that the
	// model cannot use is an error.
	Drop func(name string) bool
	// ShardBytes is the maximum size of a file of weights, in bytes; 0: one file for all.
	ShardBytes int64
}

// Export writes a model folder that transformers loads: config.json, the weights of src in
// float32, the tokenizer (for a tokenizer.json alone also a tokenizer_config.json that names it
// and its special tokens). dir must not exist or be empty; it appears complete or not at all.
// Export returns the names of the files.
func Export(dir string, c *Config, src Source, o ExportOptions) (files []string, err error) {
	entries, err := c.entries(src, o)
	if err != nil {
		return nil, err
	}
	config, err := c.JSON()
	if err != nil {
		return nil, err
	}
	beside, err := o.files()
	if err != nil {
		return nil, err
	}
	beside[ConfigFile] = config
	if t, ok := beside[tokenizerFile]; ok && beside[tokenizerConfigFile] == nil {
		if beside[tokenizerConfigFile], err = c.tokenizerConfig(t); err != nil {
			return nil, err
		}
	}
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		return nil, fmt.Errorf("%s exists and is not empty: name a new folder", dir)
	}
	dir = filepath.Clean(dir)
	work, err := durable.Stage(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(work))
		}
	}()
	files, err = safetensors.WriteModel(work, "model", entries, map[string]string{"format": "pt"}, o.ShardBytes)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(beside)) {
		if err := writeFile(filepath.Join(work, name), beside[name]); err != nil {
			return nil, err
		}
		files = append(files, name)
	}
	if err := durable.Place(work, dir); err != nil {
		return nil, err
	}
	slices.Sort(files)
	return files, nil
}

// entries returns the tensors to be written, under transformers' names for them: those of
// a bare model have no prefix.
func (c *Config) entries(src Source, o ExportOptions) ([]safetensors.Entry, error) {
	states, err := c.Weights()
	if err != nil {
		return nil, err
	}
	p, err := c.match(dropping{src, o.Drop}, "the checkpoint", states, LoadOptions{})
	if err != nil {
		return nil, err
	}
	f := c.family()
	var entries []safetensors.Entry
	for _, l := range p.copies {
		t, err := src.Tensor(l.from.Name)
		if err != nil {
			return nil, err
		}
		name := l.state.Name
		if c.Head == HeadNone {
			name = strings.TrimPrefix(name, f.base+".")
		}
		e := safetensors.Entry{Name: name, DType: safetensors.F32, Shape: t.Shape, Data: t.Data}
		if t.DType != safetensors.F32 {
			e.Data, e.Emit = nil, func(w io.Writer) error { return emitFloat32(w, t) }
		}
		entries = append(entries, e)
		for twin, of := range f.twin {
			// If nothing is tied, transformers reads the twin.
			if of == l.state.Name && !c.tied() {
				e.Name = twin
				entries = append(entries, e)
			}
		}
	}
	return entries, nil
}

// dropping is a source without some of its tensors.
type dropping struct {
	Source
	drop func(name string) bool
}

func (d dropping) Tensors() []safetensors.Info {
	if d.drop == nil {
		return d.Source.Tensors()
	}
	return slices.DeleteFunc(d.Source.Tensors(), func(t safetensors.Info) bool { return d.drop(t.Name) })
}

func emitFloat32(w io.Writer, t safetensors.Tensor) error {
	x := make([]float32, len(t.Data)*8/t.DType.Bits())
	if err := t.Float32s(x); err != nil {
		return err
	}
	out := make([]byte, 0, 4*len(x))
	for _, v := range x {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	_, err := w.Write(out)
	return err
}

// files returns the files other than config.json and the weights.
func (o ExportOptions) files() (map[string][]byte, error) {
	files := map[string][]byte{}
	if o.TokenizerFrom != "" {
		for _, name := range TokenizerFiles {
			text, err := regular.Read(filepath.Join(o.TokenizerFrom, name), token.MaxFile)
			switch {
			case errors.Is(err, os.ErrNotExist):
			case err != nil:
				return nil, err
			default:
				files[name] = text
			}
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s has no tokenizer: want one of %s", o.TokenizerFrom, strings.Join(TokenizerFiles, ", "))
		}
	}
	for name, text := range o.Files {
		if name != filepath.Base(name) || !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%q is not a plain file name", name)
		}
		files[name] = text
	}
	return files, nil
}

func writeFile(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}
