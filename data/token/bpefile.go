package token

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// A bpeFile is the tokenizer.json of a byte-level BPE under construction.
type bpeFile struct {
	tokens []string // by id, as they are spelled in the file
	ids    map[string]int32
	merges [][2]int32
	added  []addedJSON
	roles  map[Role]string
	whole  bool // text is not cut into words
}

type addedJSON struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

func newBPEFile() *bpeFile {
	return &bpeFile{ids: map[string]int32{}, roles: map[Role]string{}}
}

func (b *bpeFile) size() int { return len(b.tokens) }

// add returns the id of a spelling, the next one if it has none yet: two merges can make the same token.
func (b *bpeFile) add(spelled string) int32 {
	id, ok := b.ids[spelled]
	if !ok {
		id = int32(len(b.tokens))
		b.ids[spelled] = id
		b.tokens = append(b.tokens, spelled)
	}
	return id
}

func (b *bpeFile) special(s Special) error {
	if s.Content == "" {
		return fmt.Errorf("a special token is empty")
	}
	if raw, ok := unspellBytes(nil, s.Content); ok && len(raw) == 1 {
		return fmt.Errorf("special token %q is how the vocabulary spells byte 0x%02X; give it another name", s.Content, raw[0])
	}
	if _, ok := b.ids[s.Content]; ok {
		return fmt.Errorf("special token %q is given twice", s.Content)
	}
	b.added = append(b.added, addedJSON{ID: b.add(s.Content), Content: s.Content, Special: true})
	for _, role := range s.Roles {
		if !slices.Contains(allRoles[:], role) {
			return fmt.Errorf("special token %q has role %q; expected one of %v", s.Content, role, allRoles)
		}
		if old, ok := b.roles[role]; ok {
			return fmt.Errorf("special tokens %q and %q both have role %s", old, s.Content, role)
		}
		b.roles[role] = s.Content
	}
	return nil
}

// bytes adds the 256 bytes, in the order of the characters that spell them.
func (b *bpeFile) bytes() (ids [256]int32) {
	for r, v := range runeByte {
		if v >= 0 {
			ids[v] = b.add(string(rune(r)))
		}
	}
	return ids
}

// merge adds a merge, unless it would make a special token.
func (b *bpeFile) merge(left, right int32) (into int32, ok bool) {
	spelled := b.tokens[left] + b.tokens[right]
	if id, ok := b.ids[spelled]; ok && int(id) < len(b.added) {
		return 0, false
	}
	b.merges = append(b.merges, [2]int32{left, right})
	return b.add(spelled), true
}

// orderedVocab is a vocabulary that is written in id order.
type orderedVocab []string

func (v orderedVocab) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	out.WriteByte('{')
	for id, token := range v {
		if id > 0 {
			out.WriteByte(',')
		}
		key, err := plainJSON(token)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, "%s:%d", key, id)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// plainJSON is json.Marshal without the escapes for HTML.
func plainJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(out.Bytes()), err
}

type dict = map[string]any

// byteLevelDict is the JSON of a ByteLevel component.
func byteLevelDict(prefixSpace, words bool) dict {
	return dict{"type": "ByteLevel", "add_prefix_space": prefixSpace, "trim_offsets": true, "use_regex": words}
}

// json returns the file.
func (b *bpeFile) json() ([]byte, error) {
	merges := make([]string, len(b.merges))
	for i, m := range b.merges {
		merges[i] = b.tokens[m[0]] + " " + b.tokens[m[1]]
	}
	return fileJSON{
		Added: b.added,
		Pre:   byteLevelDict(false, !b.whole),
		Post:  byteLevelDict(false, true),
		Dec:   byteLevelDict(false, true),
		Model: bpeDict(b.tokens, merges),
	}.bytes()
}

// bpeDict is the JSON of a plain BPE model; merges are written as "a b", which every
// version of the reference reads.
func bpeDict(tokens, merges []string) dict {
	return dict{
		"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": orderedVocab(tokens), "merges": merges,
	}
}

// A fileJSON is a tokenizer.json without truncation and padding.
type fileJSON struct {
	Added                       []addedJSON
	Norm, Pre, Post, Dec, Model any
}

func (f fileJSON) bytes() ([]byte, error) {
	if f.Added == nil {
		f.Added = []addedJSON{}
	}
	return plainJSON(struct {
		Version    string      `json:"version"`
		Truncation any         `json:"truncation"`
		Padding    any         `json:"padding"`
		Added      []addedJSON `json:"added_tokens"`
		Norm       any         `json:"normalizer"`
		Pre        any         `json:"pre_tokenizer"`
		Post       any         `json:"post_processor"`
		Dec        any         `json:"decoder"`
		Model      any         `json:"model"`
	}{"1.0", nil, nil, f.Added, f.Norm, f.Pre, f.Post, f.Dec, f.Model})
}

// tokenizer reads the file back, so that what is used is what will be saved.
func (b *bpeFile) tokenizer() (*Tokenizer, error) {
	content, err := b.json()
	if err != nil {
		return nil, err
	}
	t, err := Parse(File, content)
	if err != nil {
		return nil, err
	}
	if len(b.roles) > 0 {
		clear(t.roles)
		for role, token := range b.roles {
			if err := t.setRole(role, token); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// saveConfig writes tokenizer_config.json: how transformers should load the folder, and the roles
// of the special tokens.
func (t *Tokenizer) saveConfig(dir, class string) error {
	config := dict{"tokenizer_class": class}
	for role, id := range t.roles {
		config[string(role)+"_token"] = t.tokens[id]
	}
	content, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), append(content, '\n'), 0o644)
}
