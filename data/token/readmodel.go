package token

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// readModel reads the model and, with it, the vocabulary.
func (t *Tokenizer) readModel(n node) {
	o := n.object()
	if o.err != nil {
		return
	}
	kind := o.get("type")
	var name string
	if kind.isNull() {
		name = guessModel(o) // files from before 2020 do not name it
	} else {
		name = kind.str()
	}
	switch name {
	case "BPE":
		t.readBPE(o)
	case "WordPiece":
		t.readWordPiece(o)
	case "WordLevel":
		t.readWordLevel(o)
	case "Unigram":
		t.readUnigram(o)
	case "":
		if o.err == nil {
			kind.fail("missing; expected BPE, WordPiece, WordLevel or Unigram")
		}
	default:
		kind.fail("model %q is not supported; expected BPE, WordPiece, WordLevel or Unigram", name)
	}
	o.done()
}

// guessModel recognizes the model by the fields that only it has.
func guessModel(o object) string {
	has := func(name string) bool { _, ok := o.fields[name]; return ok }
	vocab := strings.TrimSpace(string(o.fields["vocab"]))
	switch {
	case strings.HasPrefix(vocab, "["):
		return "Unigram"
	case has("merges"):
		return "BPE"
	case has("max_input_chars_per_word"), has("continuing_subword_prefix"):
		return "WordPiece"
	case has("unk_token") && has("vocab"):
		return "WordLevel"
	}
	return ""
}

func (t *Tokenizer) readBPE(o object) {
	m := &bpe{unk: -1}
	vocab := o.get("vocab")
	m.ids = read[map[string]int32](vocab, "an object of tokens and ids")
	if v := o.get("dropout"); !v.isNull() && v.float() != 0 {
		v.fail("dropout %s is not supported: the same text would not always give the same ids; set it to null", v.shown())
	}
	m.prefix = o.get("continuing_subword_prefix").strOr("")
	m.suffix = o.get("end_of_word_suffix").strOr("")
	m.fuseUnk = o.get("fuse_unk").boolOr(false)
	m.byteFallback = o.get("byte_fallback").boolOr(false)
	m.wholeWords = o.get("ignore_merges").boolOr(false)
	unk := o.get("unk_token")
	if !unk.isNull() {
		if id, ok := m.ids[unk.str()]; ok {
			m.unk = id
		}
	}
	m.readMerges(o.get("merges"))
	t.setTokens(vocab, m.ids)
	if o.err != nil {
		return
	}
	m.index()
	if !unk.isNull() && m.unk < 0 && !m.hasAllBytes() {
		unk.fail("unk_token %s is not in the vocabulary, so unknown text could not be encoded", unk.shown())
	}
	t.model = m
}

// index fills the tables that are derived from the vocabulary.
func (m *bpe) index() {
	for b := range 256 {
		m.byteID[b], m.fallback[b] = -1, -1
		if id, ok := m.ids[string(byteRune[b])]; ok {
			m.byteID[b] = id
		}
		if id, ok := m.ids[fmt.Sprintf("<0x%02X>", b)]; ok {
			m.fallback[b] = id
		}
	}
}

// hasAllBytes reports whether every byte has a token, so that nothing is unknown to a byte-level
// tokenizer.
func (m *bpe) hasAllBytes() bool {
	for _, id := range m.byteID {
		if id < 0 {
			return false
		}
	}
	return true
}

// useBytes makes the model take words as raw bytes, not as the characters that spell
// them. It returns false for a model that considers more than the characters themselves,
// or for which bytes can be unknown.
func (m *bpe) useBytes() bool {
	if m.prefix != "" || m.suffix != "" || m.byteFallback || !m.hasAllBytes() {
		return false
	}
	m.bytes = true
	if m.wholeWords {
		m.words = make(map[string]int32, len(m.ids))
		for token, id := range m.ids {
			if raw, ok := unspellBytes(nil, token); ok {
				m.words[string(raw)] = id
			}
		}
	}
	return true
}

// readMerges reads pairs, the best ranked first.
func (m *bpe) readMerges(n node) {
	pairs := readPairs(n)
	if n.err != nil {
		return
	}
	m.pairs = newPairTable(len(pairs))
	m.into = make([]int32, len(pairs))
	var spelled []byte
	for i, pair := range pairs {
		left, ok1 := m.ids[pair[0]]
		right, ok2 := m.ids[pair[1]]
		// The right part loses the prefix that marks it as not beginning a word.
		tail := pair[1]
		if len(m.prefix) > len(tail) || len(m.prefix) < len(tail) && !utf8.RuneStart(tail[len(m.prefix)]) {
			n.item(i).fail("the right part of merge %q is shorter than continuing_subword_prefix %q", pair, m.prefix)
			return
		}
		spelled = append(append(spelled[:0], pair[0]...), tail[len(m.prefix):]...)
		into, ok3 := m.ids[string(spelled)]
		if !ok1 || !ok2 || !ok3 {
			n.item(i).fail("merge %q uses or makes a token that is not in the vocabulary", pair)
			return
		}
		m.pairs.set(left, right, uint32(i))
		m.into[i] = into
	}
}

// readPairs reads an array of pairs: all ["a", "b"] or, as in older files, all "a b".
func readPairs(n node) (pairs [][]string) {
	if n.isNull() {
		n.fail("missing; expected an array of merges")
	}
	if n.err != nil || json.Unmarshal(n.raw, &pairs) == nil && checkPairs(n, pairs) {
		return pairs
	}
	var lines []string
	if err := json.Unmarshal(n.raw, &lines); err != nil {
		n.fail("expected an array of merges, all [\"a\", \"b\"] or all \"a b\"")
		return nil
	}
	pairs = make([][]string, len(lines))
	for i, line := range lines {
		pairs[i] = strings.Split(line, " ")
	}
	checkPairs(n, pairs)
	return pairs
}

// checkPairs checks that each pair has two parts.
func checkPairs(n node, pairs [][]string) bool {
	for i, pair := range pairs {
		if len(pair) != 2 {
			n.item(i).fail("expected a pair of tokens, found %q", pair)
			return false
		}
	}
	return true
}
