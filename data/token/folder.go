package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/snug-ml/snug/internal/regular"
	"github.com/snug-ml/snug/internal/strictjson"
)

// Load reads a tokenizer from a tokenizer.json, or from a folder as LoadFolder does. Files next
// to tokenizer.json that define the roles of special tokens are read, too.
func Load(path string) (*Tokenizer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	if info.IsDir() {
		return LoadFolder(path)
	}
	t, err := loadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	return t, nil
}

// LoadFolder reads the tokenizer of a model folder: tokenizer.json or, without one, the
// older files of PhoBERT (vocab.txt and bpe.codes), GPT-2 and RoBERTa (vocab.json and
// merges.txt) or BERT (vocab.txt).
func LoadFolder(dir string) (*Tokenizer, error) {
	t, err := loadFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	return t, nil
}

// InFolder reports whether a folder has a tokenizer that [LoadFolder] reads.
func InFolder(dir string) bool {
	return slices.ContainsFunc([]string{File, "vocab.txt", "vocab.json"}, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

func loadFolder(dir string) (*Tokenizer, error) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	var t *Tokenizer
	var err error
	switch {
	case has(File):
		return loadFile(filepath.Join(dir, File))
	case has("vocab.txt") && has("bpe.codes"):
		t, err = loadPhoBERT(dir)
	case has("vocab.json") && has("merges.txt"), has("vocab.txt"):
		t, err = loadOlder(dir)
	default:
		for _, name := range [...]string{"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"} {
			if has(name) {
				return nil, fmt.Errorf("%s: a SentencePiece model is not supported; save the tokenizer as tokenizer.json with transformers", filepath.Join(dir, name))
			}
		}
		return nil, fmt.Errorf("%s: expected tokenizer.json, vocab.json with merges.txt, vocab.txt with bpe.codes, or vocab.txt", dir)
	}
	if err != nil {
		return nil, err
	}
	return t, t.readRoles(dir)
}

func loadFile(path string) (*Tokenizer, error) {
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	t, err := Parse(path, content)
	if err != nil {
		return nil, err
	}
	return t, t.readRoles(filepath.Dir(path))
}

func loadPhoBERT(dir string) (*Tokenizer, error) {
	vocabName, codesName := filepath.Join(dir, "vocab.txt"), filepath.Join(dir, "bpe.codes")
	vocab, err := readFile(vocabName)
	if err != nil {
		return nil, err
	}
	codes, err := readFile(codesName)
	if err != nil {
		return nil, err
	}
	return newPhoBERT(vocabName, string(vocab), codesName, string(codes))
}

// readFile reads a file of bounded size.
func readFile(path string) ([]byte, error) { return regular.Read(path, MaxFile) }

// readJSON reads a JSON object; a file that does not exist is an empty one.
func readJSON(path string) (object, error) {
	content, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		content, err = []byte("{}"), nil
	}
	if err != nil {
		return object{}, err
	}
	if !utf8.Valid(content) {
		return object{}, fmt.Errorf("%s: not UTF-8", path)
	}
	if !json.Valid(content) {
		return object{}, fmt.Errorf("%s: not JSON: %w", path, json.Unmarshal(content, new(any)))
	}
	if err := strictjson.Repeated(content); err != nil {
		return object{}, fmt.Errorf("%s: %w", path, err)
	}
	o := node{&reader{name: path}, "", content}.object()
	return o, o.err
}

// readRoles reads special_tokens_map.json and then tokenizer_config.json, which takes precedence,
// if they exist.
func (t *Tokenizer) readRoles(dir string) error {
	for _, name := range [...]string{"special_tokens_map.json", "tokenizer_config.json"} {
		root, err := readJSON(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		for _, role := range allRoles {
			n := root.get(string(role) + "_token")
			if n.isNull() {
				continue
			}
			token := n.readAddedToken().Content
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

// readAddedToken reads a special token, given only by its content or with the fields of an added
// token.
func (n node) readAddedToken() addedJSON {
	if n.raw[0] != '{' {
		return addedJSON{Content: n.str(), Special: true}
	}
	o := n.object()
	return addedJSON{
		Content:    o.get("content").str(),
		Special:    o.get("special").boolOr(true),
		LStrip:     o.get("lstrip").boolOr(false),
		RStrip:     o.get("rstrip").boolOr(false),
		SingleWord: o.get("single_word").boolOr(false),
		Normalized: o.get("normalized").boolOr(false),
	}
}
