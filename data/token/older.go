package token

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// loadOlder reads a folder from before tokenizer.json: vocab.json with merges.txt, or BERT's
// vocab.txt. Its meaning depends on the class of the tokenizer, which tokenizer_config.json names
// or config.json implies by the type of the model; each class has the parts that transformers
// gives it.
func loadOlder(dir string) (*Tokenizer, error) {
	config, err := readJSON(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return nil, err
	}
	model, err := readJSON(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, err
	}
	kind := strings.TrimSuffix(config.get("tokenizer_class").strOr(""), "Fast")
	kind = strings.ToLower(strings.TrimSuffix(kind, "Tokenizer"))
	kind = cmp.Or(kind, model.get("model_type").strOr(""))
	if err := errors.Join(config.err, model.err); err != nil {
		return nil, err
	}
	_, err = os.Stat(filepath.Join(dir, "merges.txt"))
	merges := err == nil
	f := olderFolder{dir: dir, config: config}
	switch {
	case merges && (kind == "" || kind == "gpt2"):
		return f.gpt2()
	case merges && kind == "roberta":
		return f.roberta()
	case !merges && (kind == "" || kind == "bert"):
		return f.bert()
	}
	return nil, fmt.Errorf("%s: a %s tokenizer without tokenizer.json is not supported; save it as tokenizer.json with transformers", dir, kind)
}

// An olderFolder is a folder being converted to a tokenizer.json.
type olderFolder struct {
	dir    string
	config object // tokenizer_config.json
	tokens []string
	ids    map[string]int32
}

// usual are the default special tokens of a class.
func usual(contents ...string) (out []addedJSON) {
	for _, c := range contents {
		out = append(out, addedJSON{Content: c, Special: true, LStrip: c == "<mask>"})
	}
	return out
}

func (f *olderFolder) gpt2() (*Tokenizer, error) {
	if f.config.get("add_bos_token").boolOr(false) {
		return nil, fmt.Errorf("%s: add_bos_token: not supported without tokenizer.json", f.config.name)
	}
	return f.byteLevel(byteLevelDict(false, true), usual("<|endoftext|>"), func(bool) (any, error) {
		return dict{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}, nil
	})
}

func (f *olderFolder) roberta() (*Tokenizer, error) {
	return f.byteLevel(byteLevelDict(true, true), usual("<s>", "<pad>", "</s>", "<unk>", "<mask>"), func(prefixSpace bool) (any, error) {
		cls, err1 := f.pair("<s>")
		sep, err2 := f.pair("</s>")
		return dict{"type": "RobertaProcessing", "cls": cls, "sep": sep, "trim_offsets": true, "add_prefix_space": prefixSpace}, errors.Join(err1, err2)
	})
}

// pair returns a token with its id, as post-processors use it.
func (f *olderFolder) pair(token string) ([]any, error) {
	id, ok := f.ids[token]
	if !ok {
		return nil, fmt.Errorf("%s: the vocabulary has no %q, which the text is wrapped in", f.dir, token)
	}
	return []any{token, id}, nil
}

// byteLevel reads vocab.json and merges.txt.
func (f *olderFolder) byteLevel(decoder dict, specials []addedJSON, post func(prefixSpace bool) (any, error)) (*Tokenizer, error) {
	if err := f.readVocabJSON(); err != nil {
		return nil, err
	}
	merges, err := readMergesText(filepath.Join(f.dir, "merges.txt"))
	if err != nil {
		return nil, err
	}
	prefixSpace := f.config.get("add_prefix_space").boolOr(false)
	processor, err := post(prefixSpace)
	if err != nil {
		return nil, err
	}
	return f.tokenizer(specials, fileJSON{
		Pre:   byteLevelDict(prefixSpace, true),
		Post:  processor,
		Dec:   decoder,
		Model: bpeDict(f.tokens, merges),
	})
}

func (f *olderFolder) readVocabJSON() error {
	path := filepath.Join(f.dir, "vocab.json")
	o, err := readJSON(path)
	if err != nil {
		return err
	}
	f.ids = read[map[string]int32](o.node, "an object of tokens and ids")
	t := newTokenizer()
	t.setTokens(o.node, f.ids)
	for id, ok := range t.known {
		if !ok {
			o.fail("no token has id %d", id)
		}
	}
	f.tokens = t.tokens
	return o.err
}

// readMergesText reads one merge per line, "a b", below a version line.
func readMergesText(path string) (merges []string, err error) {
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return merges, eachLine(path, string(content), func(line string) error {
		switch {
		case line == "", len(merges) == 0 && strings.HasPrefix(line, "#version"):
		case strings.Count(line, " ") != 1:
			return fmt.Errorf("expected two tokens, found %.40q", line)
		default:
			merges = append(merges, line)
		}
		return nil
	})
}

// bert reads vocab.txt, one token per line.
func (f *olderFolder) bert() (*Tokenizer, error) {
	path := filepath.Join(f.dir, "vocab.txt")
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	f.ids = map[string]int32{}
	err = eachLine(path, string(content), func(line string) error {
		if _, ok := f.ids[line]; ok {
			return fmt.Errorf("token %q is given twice", line)
		}
		f.ids[line] = int32(len(f.tokens))
		f.tokens = append(f.tokens, line)
		return nil
	})
	if err != nil {
		return nil, err
	}
	cls, err1 := f.pair("[CLS]")
	sep, err2 := f.pair("[SEP]")
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	lower := f.config.get("do_lower_case").boolOr(true)
	var accents any // null: as lowercase
	if n := f.config.get("strip_accents"); !n.isNull() {
		accents = n.bool()
	}
	return f.tokenizer(usual("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), fileJSON{
		Norm: dict{
			"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": f.config.get("tokenize_chinese_chars").boolOr(true),
			"strip_accents": accents, "lowercase": lower,
		},
		Pre:  dict{"type": "BertPreTokenizer"},
		Post: dict{"type": "BertProcessing", "cls": cls, "sep": sep},
		Dec:  dict{"type": "WordPiece", "prefix": "##", "cleanup": true},
		Model: dict{
			"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
			"vocab": orderedVocab(f.tokens),
		},
	})
}

// tokenizer adds the added tokens to the rest and reads it.
func (f *olderFolder) tokenizer(specials []addedJSON, file fileJSON) (*Tokenizer, error) {
	var err error
	if file.Added, err = f.added(specials); err != nil {
		return nil, err
	}
	if f.config.err != nil {
		return nil, f.config.err
	}
	content, err := file.bytes()
	if err != nil {
		return nil, err
	}
	return Parse(f.dir, content)
}

// added returns the added tokens by id: those of added_tokens_decoder in
// tokenizer_config.json or, in folders without one, the special tokens that the
// vocabulary has, then those of added_tokens.json.
func (f *olderFolder) added(specials []addedJSON) (out []addedJSON, err error) {
	decoder := f.config.get("added_tokens_decoder")
	if !decoder.isNull() {
		o := decoder.object()
		for id := range o.fields {
			n := o.get(id)
			v, err := strconv.ParseInt(id, 10, 32)
			if err != nil || v < 0 || n.isNull() {
				return nil, fmt.Errorf("%s: %s: expected an id and a token", f.config.name, n.path)
			}
			a := n.readAddedToken()
			a.ID = int32(v)
			out = append(out, a)
		}
	} else {
		for _, a := range specials {
			if id, ok := f.ids[a.Content]; ok {
				a.ID = id
				out = append(out, a)
			}
		}
		o, err := readJSON(filepath.Join(f.dir, "added_tokens.json"))
		if err != nil {
			return nil, err
		}
		more := map[string]int32{}
		if err := json.Unmarshal(o.raw, &more); err != nil {
			return nil, fmt.Errorf("%s: expected an object of tokens and ids", o.name)
		}
		for content, id := range more {
			if !slices.ContainsFunc(out, func(a addedJSON) bool { return a.Content == content }) {
				out = append(out, addedJSON{ID: id, Content: content, Normalized: true})
			}
		}
	}
	slices.SortFunc(out, func(a, b addedJSON) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}
