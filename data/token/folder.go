package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Load reads a tokenizer from a tokenizer.json, or from a folder as LoadFolder does. Files beside tokenizer.json that say the roles of
// special tokens are read, too.
func Load(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	if info.IsDir() {
		return LoadFolder(path)
	}
	content, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	t, err := Parse(path, content)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	if err := t.readRoles(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	return t, nil
}

// LoadFolder reads the tokenizer of a model folder.
func LoadFolder(dir string) (*Tokenizer, error) {
	return Load(filepath.Join(dir, "tokenizer.json"))
}

// readFile reads a file of bounded size.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(content) > maxFileSize {
		return nil, fmt.Errorf("%s: more than %d bytes; a tokenizer file has fewer", path, maxFileSize)
	}
	return content, nil
}

// readRoles reads special_tokens_map.json and then tokenizer_config.json, which wins, where they exist.
func (t *Tokenizer) readRoles(dir string) error {
	for _, name := range []string{"special_tokens_map.json", "tokenizer_config.json"} {
		path := filepath.Join(dir, name)
		content, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !json.Valid(content) {
			return fmt.Errorf("%s: not JSON: %w", path, json.Unmarshal(content, new(any)))
		}
		root := node{&reader{name: path}, "", content}.object()
		for _, role := range allRoles {
			n := root.get(string(role) + "_token")
			if n.isNull() {
				continue
			}
			var token string
			if n.raw[0] == '{' {
				token = n.object().get("content").str()
			} else {
				token = n.str()
			}
			if root.err == nil {
				if err := t.setRole(role, token); err != nil {
					n.fail("%v", err)
				}
			}
		}
		if root.err != nil {
			return root.err
		}
	}
	return nil
}
