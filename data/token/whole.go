package token

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/snug-ml/snug/internal/durable"
	"github.com/snug-ml/snug/internal/regular"
)

// SaveWhole saves the tokenizer to a folder that appears complete, replacing any
// with its name.
func (t *Tokenizer) SaveWhole(dir string) error {
	return durable.Folder(dir, t.Save)
}

// reloaded returns the tokenizer after saving and loading it.
func (t *Tokenizer) reloaded() (r *Tokenizer, err error) {
	dir, err := durable.Scratch("tokenizer")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := t.Save(dir); err != nil {
		return nil, err
	}
	return Load(filepath.Join(dir, File))
}

// Files returns the files that Save writes, by name: what a checkpoint keeps of its
// tokenizer.
func (t *Tokenizer) Files() (files map[string][]byte, err error) {
	dir, err := durable.Scratch("tokenizer")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := t.Save(dir); err != nil {
		return nil, err
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files = map[string][]byte{}
	for _, f := range list {
		if files[f.Name()], err = regular.Read(filepath.Join(dir, f.Name()), MaxFile); err != nil {
			return nil, err
		}
	}
	return files, nil
}
