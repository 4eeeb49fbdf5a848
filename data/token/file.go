package token

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"
)

// File is the name of a tokenizer's file in Hugging Face's format.
const File = "tokenizer.json"

const maxID = 1<<31 - 1

// MaxFile bounds each file of a tokenizer, in bytes. The largest tokenizer.json
// in use is 35 MB.
const MaxFile = 128 << 20

// Parse reads the content of a tokenizer.json; name is what errors call it.
func Parse(name string, content []byte) (t *Tokenizer, err error) {
	defer Catch(&err)
	if len(content) > MaxFile {
		return nil, fmt.Errorf("%s: %d bytes; a tokenizer file has at most %d", name, len(content), MaxFile)
	}
	if !utf8.Valid(content) {
		return nil, fmt.Errorf("%s: not UTF-8", name)
	}
	if !json.Valid(content) {
		return nil, fmt.Errorf("%s: not JSON: %w", name, json.Unmarshal(content, new(any)))
	}
	t = newTokenizer()
	root := node{&reader{name: name}, "", content}.object()
	if v := root.get("version"); !v.isNull() && v.str() != "1.0" {
		v.fail("version %s is not known; expected \"1.0\"", v.shown())
	}
	t.readModel(root.get("model"))
	t.norm = readNormalizer(root.get("normalizer"))
	t.readAdded(root.get("added_tokens"))
	t.pre = readPreTokenizer(root.get("pre_tokenizer"))
	t.post = t.readPostProcessor(root.get("post_processor"))
	t.decoder = readDecoder(root.get("decoder"))
	t.truncation = readTruncation(root.get("truncation"))
	t.padding = t.readPadding(root.get("padding"))
	root.done()
	if root.err != nil {
		return nil, root.err
	}
	t.join()
	t.guessRoles()
	kept := slices.Clone(content)
	t.save = func(dir string) error {
		if err := os.WriteFile(filepath.Join(dir, File), kept, 0o644); err != nil {
			return err
		}
		return t.saveConfig(dir, "PreTrainedTokenizerFast")
	}
	return t, nil
}

func newTokenizer() *Tokenizer {
	return &Tokenizer{added: map[int32]*addedToken{}, roles: map[Role]int32{}, cache: newWordCache()}
}

// setTokens fills the tables of tokens from the model's vocabulary. Ids may have gaps,
// but not more gaps than tokens.
func (t *Tokenizer) setTokens(n node, ids map[string]int32) {
	highest := int32(-1)
	for token, id := range ids {
		if id < 0 {
			n.fail("token %q has id %d; expected 0 or more", token, id)
			return
		}
		highest = max(highest, id)
	}
	if int(highest) > 16*len(ids)+1<<16 {
		n.fail("%d tokens have ids up to %d; ids this sparse are not supported", len(ids), highest)
		return
	}
	t.ids = ids
	t.tokens = make([]string, highest+1)
	t.known = make([]bool, highest+1)
	for token, id := range ids {
		if t.known[id] {
			n.fail("tokens %q and %q have the same id %d", min(t.tokens[id], token), max(t.tokens[id], token), id)
			return
		}
		t.tokens[id], t.known[id] = token, true
	}
}

// readAdded reads the added tokens and makes them findable. As in the reference, an added
// token has the id that the model gives it, or otherwise the next free one; a file that
// contradicts this is refused.
func (t *Tokenizer) readAdded(n node) {
	if n.isNull() {
		return
	}
	inModel, highest := len(t.ids), -1
	var list []addedToken
	for _, item := range n.list() {
		o := item.object()
		a := addedToken{
			id:         o.get("id").id(),
			content:    o.get("content").str(),
			special:    o.get("special").boolOr(false),
			lstrip:     o.get("lstrip").boolOr(false),
			rstrip:     o.get("rstrip").boolOr(false),
			singleWord: o.get("single_word").boolOr(false),
		}
		a.normalized = o.get("normalized").boolOr(!a.special)
		o.done()
		if o.err != nil {
			return
		}
		if a.content == "" {
			item.fail("an added token without content can never be found")
			return
		}
		want, ok := t.ids[a.content]
		if !ok {
			want = int32(max(inModel, highest+1))
			if int(want) < len(t.tokens) && t.known[want] {
				item.fail("id %d is that of %q", want, t.tokens[want])
				return
			}
		}
		if a.id != want {
			o.get("id").fail("added token %q has id %d here, but the vocabulary gives it %d", a.content, a.id, want)
			return
		}
		if !ok {
			t.ids[a.content] = a.id
			for int(a.id) >= len(t.tokens) {
				t.tokens = append(t.tokens, "")
				t.known = append(t.known, false)
			}
			t.tokens[a.id], t.known[a.id] = a.content, true
		}
		highest = max(highest, int(a.id))
		list = append(list, a)
	}
	t.setAdded(list)
}

// setAdded makes the added tokens findable.
func (t *Tokenizer) setAdded(list []addedToken) {
	// Special tokens go first: of two with the same spelling, the first is found.
	slices.SortStableFunc(list, func(a, b addedToken) int {
		switch {
		case a.special && !b.special:
			return -1
		case b.special && !a.special:
			return 1
		}
		return 0
	})
	for i := range list {
		t.added[list[i].id] = &list[i]
	}
	t.before, t.after = t.finders(list)
}

// finders makes the two sets of added tokens that are searched for before and after the normalizer.
func (t *Tokenizer) finders(list []addedToken) (before, after *addedSet) {
	var raw, norm []addedToken
	var rawText, normText []string
	for _, a := range list {
		if !a.normalized {
			raw, rawText = append(raw, a), append(rawText, a.content)
			continue
		}
		text := a.content
		if t.norm != nil {
			text = t.norm.normalize(newStretch(text, false)).s
		}
		if text != "" { // the normalizer may leave nothing to find
			norm, normText = append(norm, a), append(normText, text)
		}
	}
	return newAddedSet(raw, rawText), newAddedSet(norm, normText)
}
