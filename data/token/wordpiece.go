package token

import (
	"maps"
	"unicode/utf8"
)

// wordPiece takes the longest piece of the vocabulary again and again (Wu et al. 2016; BERT's
// wordpiece tokenizer). A word that cannot be split this way is unknown as a whole.
type wordPiece struct {
	start   trie // pieces that begin a word
	inside  trie // the others, without their prefix
	unk     int32
	longest int // words with more characters are unknown
}

func (t *Tokenizer) readWordPiece(o object) {
	vocab := o.get("vocab")
	ids := read[map[string]int32](vocab, "an object of tokens and ids")
	prefix := o.get("continuing_subword_prefix").strOr("##")
	m := &wordPiece{start: newTrie(), inside: newTrie(), longest: o.get("max_input_chars_per_word").intOr(100)}
	t.setTokens(vocab, ids)
	m.unk = t.readUnknown(o.get("unk_token"), "[UNK]")
	for token, id := range ids {
		if token != "" {
			m.start.insert(token, id)
		}
		if len(token) > len(prefix) && token[:len(prefix)] == prefix {
			m.inside.insert(token[len(prefix):], id)
		}
	}
	t.model = m
}

// readUnknown reads the token for unknown text, which these models require.
func (t *Tokenizer) readUnknown(n node, usual string) int32 {
	token := n.strOr(usual)
	id, ok := t.ids[token]
	if !ok {
		n.fail("unk_token %q is not in the vocabulary, so unknown text could not be encoded", token)
	}
	return id
}

func (m *wordPiece) tokenize(dst []symbol, word string) []symbol {
	whole := len(dst)
	unknown := symbol{m.unk, int32(len(word))}
	if len(word) > m.longest && utf8.RuneCountInString(word) > m.longest {
		return append(dst, unknown)
	}
	for i := 0; i < len(word); {
		from := &m.inside
		if i == 0 {
			from = &m.start
		}
		id, n := from.longest(word[i:])
		if n == 0 {
			return append(dst[:whole], unknown)
		}
		dst = append(dst, symbol{id, int32(n)})
		i += n
	}
	return dst
}

// wordLevel looks up whole words.
type wordLevel struct {
	ids map[string]int32
	unk int32
}

func (t *Tokenizer) readWordLevel(o object) {
	vocab := o.get("vocab")
	m := wordLevel{ids: read[map[string]int32](vocab, "an object of tokens and ids")}
	t.setTokens(vocab, m.ids)
	m.unk = t.readUnknown(o.get("unk_token"), "<unk>")
	// Added tokens go into the table of the tokenizer, not the model's.
	m.ids = maps.Clone(m.ids)
	t.model = m
}

func (m wordLevel) tokenize(dst []symbol, word string) []symbol {
	id, ok := m.ids[word]
	if !ok {
		id = m.unk
	}
	return append(dst, symbol{id, int32(len(word))})
}
